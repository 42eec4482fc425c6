"""For tests of Mooring and of plugins: builders, fakes and the contract for plugins."""
