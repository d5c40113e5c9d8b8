"""What the compilers of this machine are and say: found, asked, and their command lines read."""
