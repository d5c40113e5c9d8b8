"""Facts to keep: recipes as files, found, checked, compared, made from traces, and matched with a build."""
