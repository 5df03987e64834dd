"""Files offline: open, list, dump, verify, forecast, repair, recover."""
