"""Where the arithmetic happens: device, precision, threads, and the processes that share the work."""
