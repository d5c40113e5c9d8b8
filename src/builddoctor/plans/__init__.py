"""What a recipe means for one machine: window, threads, order, stages, and how long they take. By simulation."""
