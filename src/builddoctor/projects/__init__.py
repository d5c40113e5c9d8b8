"""What a project is and how it is built. Reads its files; starts nothing."""
