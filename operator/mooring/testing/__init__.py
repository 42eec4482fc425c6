"""For tests of Mooring and of plugin authors: builders, fakes and the contract of a plugin."""
