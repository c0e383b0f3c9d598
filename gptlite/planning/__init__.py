"""What is chosen and expected before a run starts: `auto`, sizes for the time, memory, disk, epochs, warnings."""
