"""What earlier builds took, in one SQLite file of the user's."""
