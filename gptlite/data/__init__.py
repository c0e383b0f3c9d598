"""From text to batches: documents -> validation split -> ids on disk -> the batch of step s.

sources, cards, decoding   where text comes from: files, folders, globs, data sets, Python's own library
hashes, recipe             which prepared folder belongs to a config, without reading unchanged text twice
split, reference           which part is validation, and what simple compressors make of it
shards, manifest           the format on disk
prepare, prepared          building a folder; reading it
order, batches             which windows step s sees; the tensors (torch, only in batches)
"""
