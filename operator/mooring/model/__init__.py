"""Values parsed once from API objects; nothing above this room sees a raw dict."""
