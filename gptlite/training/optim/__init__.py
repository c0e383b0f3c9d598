"""Optimizers: which one updates which parameter, and Muon."""
