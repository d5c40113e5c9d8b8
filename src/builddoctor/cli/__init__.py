"""The command line: one command a file. Parses, calls, prints, exits; nothing imports it."""
