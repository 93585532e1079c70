"""How rows are shown: as text, JSON lines or Markdown."""
