"""One phase of a traced build, to be run by itself: its folder, and its input made small."""
