// Empty: a module needs a header of its own.
