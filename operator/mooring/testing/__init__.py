"""For tests, ours and plugin authors': builders, fakes and the contract of a plugin."""
