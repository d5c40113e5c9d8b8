"""What tests of real processes share: capabilities, memory cgroups, the program as a child."""
