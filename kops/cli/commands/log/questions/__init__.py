"""Commands that answer questions about the contents of logs: numbers, records, what happened when, what the cleaner would do."""
