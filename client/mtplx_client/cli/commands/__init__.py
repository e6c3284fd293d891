"""The commands: a file each, or a few that belong together. They parse, ask the client and show."""
