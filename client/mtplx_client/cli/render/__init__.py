"""How things look: JSON documents, lines and tables. Replies come in, text or plain data go out."""
