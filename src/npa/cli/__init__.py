"""The command line: one thin module a command group, loaded only when it is used."""
