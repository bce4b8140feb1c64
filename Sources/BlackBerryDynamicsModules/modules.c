// Empty: a C target needs a source file.
