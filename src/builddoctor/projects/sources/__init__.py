"""Sources of projects: from git, from the package index, from archives; kept, checked, unpacked safely."""
