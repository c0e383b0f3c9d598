"""What training and evaluation read of a prepared data set."""
