"""Messages of all Google APIs: vocabularies, their reader, and their discovery documents."""
