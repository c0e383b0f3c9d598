"""From files, folders, links and named data sets to documents."""
