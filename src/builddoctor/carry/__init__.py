"""A half-done build, saved and restored: on another machine, in another folder, with toolkits installed anew."""
