extension Difference {
  /// Everything in which the two differ on Linux, in the order of the cases, and is meant to. Documentation/FILES.md holds the same
  /// lines.
  static let all: [Difference] = [
    Difference(
      "createFile", "with a slash at the end", foundation: "true", ours: "false",
      why: "a path with a slash at its end names a directory"),
    Difference(
      "createFile", "what is there",
      foundation: "[\"a = data ''\", \"b = data ''\", \"d/\", \"e = data ''\"]",
      ours: "[\"a = data ''\", \"b = data ''\", \"d/\"]",
      why: "the file of the step above"),
    Difference(
      "createFile with attributes", "default permissions of a file", foundation: "\"644\"", ours: "\"600\"",
      why: "Foundation's are the process's umask's; here nobody else is let in"),
    Difference(
      "createFile with attributes", "permissions after it was replaced", foundation: "\"644\"",
      ours: "\"600\"",
      why: "as above"),
    Difference(
      "access", "*", foundation: "true", ours: "false", count: 10, onlyAsRoot: true,
      why: "Foundation answers root with yes"),
    Difference(
      "createDirectory", "*default permissions", foundation: "\"755\"", ours: "\"700\"", count: 2,
      why: "Foundation's are the process's umask's; here nobody else is let in"),
    Difference(
      "createDirectory", "with intermediates: deep below a file, error",
      foundation: "path \"ROOT/f/x\", POSIX 20", ours: "path \"ROOT/f/x/y\", POSIX 20",
      why: "the path that was asked for, not the part that failed"),
    Difference(
      "createDirectory", "with intermediates: behind something missing", foundation: "ok",
      ours: "CocoaError 4",
      why: "`..` behind something missing is missing, as it is for every other call"),
    Difference(
      "createDirectory", "with intermediates: behind something missing, error", foundation: "no such step",
      ours: "path \"ROOT/i/u/../v\", POSIX 2",
      why: "the same"),
    Difference(
      "createDirectory", "with intermediates: at a dangling link", foundation: "CocoaError 516", ours: "ok",
      why: "the directory that the link leads to is made"),
    Difference(
      "createDirectory", "with intermediates: at a dangling link, error",
      foundation: "path \"ROOT/dangling\", POSIX 17", ours: "no such step",
      why: "the same"),
    Difference(
      "createDirectory", "with intermediates: below a dangling link", foundation: "CocoaError 516",
      ours: "ok",
      why: "the same"),
    Difference(
      "createDirectory", "with intermediates: below a dangling link, error",
      foundation: "path \"ROOT/dangling\", POSIX 17", ours: "no such step",
      why: "the same"),
    Difference(
      "createDirectory", "what is there", foundation: "*", ours: "*",
      why: "the directories of the steps above"),
    Difference(
      "listing by URL", "producesRelativePathURLs",
      foundation:
        "[\"ROOT/d/.h\", \"ROOT/d/.hidden\", \"ROOT/d/a\", \"ROOT/d/e\", \"ROOT/d/s\", \"ROOT/d/toE\", \"ROOT/d/with space\"]",
      ours: "[\".h\", \".hidden\", \"a\", \"e\", \"s\", \"toE\", \"with space\"]",
      why: "Foundation on Linux passes over the option"),
    Difference(
      "listing by URL", "through a link", foundation: "[]", ours: "*",
      why: "links are followed, as for paths"),
    Difference(
      "listing by URL", "missing, error", foundation: "POSIX 2", ours: "path \"ROOT/missing\", POSIX 2",
      why: "errors hold the path, too"),
    Difference(
      "listing by URL", "of a file", foundation: "[]", ours: "CocoaError 256",
      why: "what is no directory is an error, as for paths"),
    Difference(
      "listing by URL", "of a file, error", foundation: "no such step", ours: "path \"ROOT/d/a\", POSIX 20",
      why: "the same"),
    Difference(
      "enumerator by path", "of toD/", foundation: "[]",
      ours:
        "[\"1 .h\", \"1 .hidden\", \"1 a\", \"1 e\", \"1 s\", \"1 toS\", \"2 .hidden/inside\", \"2 s/b\", \"2 s/link\"]",
      why: "the slash follows the link, as for subpaths"),
    Difference(
      "enumerator by URL", "includesDirectoriesPostOrder", foundation: "*", ours: "*",
      why: "Foundation on Linux passes over the option"),
    Difference(
      "enumerator by URL", "post order: children before their directory the second time",
      foundation: "[\"1 inner\", \"1 x\"]", ours: "[\"1 inner\", \"1 inner\", \"1 x\"]",
      why: "the same"),
    Difference(
      "enumerator by URL", "producesRelativePathURLs", foundation: "*", ours: "*",
      why: "Foundation on Linux passes over the option"),
    Difference(
      "enumerator by URL", "through a link", foundation: "[]", ours: "*",
      why: "links are followed, as by path with a slash"),
    Difference(
      "enumerator by URL", "URL's attributes", foundation: "[\"b nil\", \"link nil\"]",
      ours: "[\"b NSFileTypeRegular\", \"link NSFileTypeSymbolicLink\"]",
      why: "Foundation on Linux has none when enumerating URLs"),
    Difference(
      "attributesOfItem", "references to a directory", foundation: "3", ours: "1",
      why: "directories have one name; Foundation counts `.` and `..`"),
    Difference(
      "attributesOfItem", "keys of *", foundation: "*", ours: "*", count: 3,
      why: "the owner has a number, but no name"),
    Difference(
      "setAttributes", "date before 1970", foundation: "CocoaError 512", ours: "date -86400.25",
      why: "dates reach from 1677 to 2262"),
    Difference(
      "setAttributes", "date before 1970, error", foundation: "path \"ROOT/a\", POSIX 22",
      ours: "no such step",
      why: "the same"),
    Difference(
      "extended attributes", "empty value",
      foundation: "[\"user.one: data 'eins'\", \"user.two: data '22'\"]",
      ours: "[\"user.empty: data ''\", \"user.one: data 'eins'\", \"user.two: data '22'\"]",
      why: "an empty value is kept; Foundation does not show it"),
    Difference(
      "extended attributes", "empty name", foundation: "CocoaError 512", ours: "CocoaError 514",
      why: "a name that cannot be is a wrong name; Linux has another code"),
    Difference(
      "extended attributes", "empty name, error", foundation: "path \"ROOT/a\", POSIX 34",
      ours: "path \"ROOT/a\", POSIX 22",
      why: "the same"),
    Difference(
      "extended attributes", "name of 300 bytes", foundation: "CocoaError 512", ours: "CocoaError 514",
      why: "the same"),
    Difference(
      "extended attributes", "name of 300 bytes, error", foundation: "path \"ROOT/a\", POSIX 34",
      ours: "path \"ROOT/a\", POSIX 22",
      why: "the same"),
    Difference(
      "extended attributes", "of a copy", foundation: "[]",
      ours: "[\"user.empty: data ''\", \"user.one: data 'eins'\", \"user.two: data '22'\"]",
      why: "a copy is whole"),
    Difference(
      "extended attributes", "of what was moved",
      foundation: "[\"user.one: data 'eins'\", \"user.two: data '22'\"]",
      ours: "[\"user.empty: data ''\", \"user.one: data 'eins'\", \"user.two: data '22'\"]",
      why: "the empty value of the step above"),
    Difference(
      "dates move with what is done", "copy of a file has the date of the original", foundation: "false",
      ours: "true",
      why: "a copy of a file keeps the date"),
    Difference(
      "createSymbolicLink", "target of 4096 bytes", foundation: "CocoaError 514", ours: "ok",
      why: "only the native system limits the length"),
    Difference(
      "createSymbolicLink", "target of 4096 bytes, error", foundation: "path \"ROOT/longer\", POSIX 36",
      ours: "no such step",
      why: "the same"),
    Difference(
      "linkItem", "directory again, error", foundation: "path \"ROOT/d/.hidden/inside\", POSIX 17",
      ours: "path \"ROOT/d\", POSIX 17",
      why: "refused before anything is linked, and not at the first file"),
    Difference(
      "linkItem", "directory below a file, error", foundation: "path \"ROOT/b/d\", POSIX 20",
      ours: "path \"ROOT/d\", POSIX 20",
      why: "the error names the source, as for other failures"),
    Difference(
      "linkItem", "directory into itself", foundation: "ok", ours: "CocoaError 512",
      why: "refused"),
    Difference(
      "linkItem", "directory into itself, error", foundation: "no such step",
      ours: "path \"ROOT/d/e\", POSIX 22",
      why: "the same"),
    Difference(
      "names", "256 bytes: copied to, error",
      foundation: "path 261 bytes that begin with ROOT/nnnnnnn, POSIX 36",
      ours: "path \"ROOT/source 256 bytes\", POSIX 36",
      why: "the error names the source, as for other failures"),
    Difference(
      "names", "256 bytes of UTF-8: copied to, error",
      foundation: "path 261 bytes that begin with ROOT/ééééééé, POSIX 36",
      ours: "path \"ROOT/source 256 bytes of UTF-8\", POSIX 36",
      why: "the same"),
    Difference(
      "slashes and dots", "move* a file *slash*", foundation: "*", ours: "*", count: 4,
      why: "a slash at the end names a directory, as for the other calls"),
    Difference(
      "slashes and dots", "what is *", foundation: "*", ours: "*", count: 2,
      why: "what the steps that differ leave"),
    Difference(
      "slashes and dots", "removes dots", foundation: "CocoaError 4", ours: "CocoaError 512",
      why: "what dots lead to is never removed; Foundation empties it first"),
    Difference(
      "slashes and dots", "removes dots, error", foundation: "path \"ROOT/x/y/..\", POSIX 2",
      ours: "path \"ROOT/x/y/..\", POSIX 22",
      why: "the same"),
    Difference(
      "slashes and dots", "moves a dot, error", foundation: "path \"ROOT/x/y/.\", POSIX 16",
      ours: "path \"ROOT/x/y/.\", POSIX 22",
      why: "nothing is busy, the path is wrong"),
    Difference(
      "path of more than 4096 bytes", "*", foundation: "*", ours: "*", count: 6,
      why: "only the native system limits the length"),
    Difference(
      "names for people and for the system", "*of nothing", foundation: "*", ours: "*", count: 2,
      why: "the working directory, which here is the root"),
    Difference(
      "copyItem", "directory below a file, error", foundation: "path \"ROOT/b/d\", POSIX 20",
      ours: "path \"ROOT/d\", POSIX 20",
      why: "the error names the source, as for other failures"),
    Difference(
      "copyItem", "directory onto a directory, error", foundation: "path \"ROOT/d/.hidden/inside\", POSIX 17",
      ours: "path \"ROOT/d\", POSIX 17",
      why: "refused before anything is copied, and not at the first file"),
    Difference(
      "copyItem", "directory onto a file, error", foundation: "path \"ROOT/a\", POSIX 17",
      ours: "path \"ROOT/d\", POSIX 17",
      why: "the same"),
    Difference(
      "removeItem", "by a path through a link in it", foundation: "CocoaError 4", ours: "ok",
      why: "one commit; Foundation removes the link first, and then does not find the rest"),
    Difference(
      "removeItem", "by a path through a link in it, error", foundation: "*", ours: "no such step",
      why: "the same"),
    Difference(
      "what errors hold", "*", foundation: "*", ours: "*SecureFilesError*", count: 15,
      why: "what failed, what to do, and the container's own error stand beside Foundation's keys"),
    Difference(
      "replaceItemAt", "*", foundation: "*", ours: "*", count: 225,
      why: "Foundation on Linux fails here, and loses or leaves behind one of the two"),
    Difference(
      "replaceItemAt that fails, and names in the way", "file by the directory that it is in, error",
      foundation: "POSIX 39", ours: "path \"ROOT/e/inside\", POSIX 22",
      why: "the path of the item, and the same code as the other way round"),
    Difference(
      "replaceItemAt: dates and open handles", "*", foundation: "*", ours: "*", count: 4,
      why: "the same"),
    Difference(
      "delegate refuses", "removal *", foundation: "*513*", ours: "*512*", count: 3,
      why: "what a refused item keeps from being removed is not empty; Foundation calls it not permitted"),
    Difference(
      "delegate refuses", "*, error", foundation: "*POSIX 1", ours: "*POSIX 39", count: 2,
      why: "the same"),
    Difference(
      "delegate refuses", "what is there", foundation: "*", ours: "*",
      why: "what comes before the refused item in the order of the file system, here of the names, is gone"),
    Difference(
      "delegate refuses", "asked at the removal", foundation: "*", ours: "*",
      why: "the same"),
    Difference(
      "delegate and errors", "goes on: copy of a directory onto a file: asked", foundation: "*",
      ours: "[\"copy ROOT/d to ROOT/b\", \"CocoaError 516 copying ROOT/d to ROOT/b\"]",
      why: "what is in a directory that could not be made is not tried"),
    Difference(
      "delegate and errors", "goes on: link onto a file", foundation: "CocoaError 260", ours: "ok",
      why: "follows from the next line: the source is still there"),
    Difference(
      "delegate and errors", "goes on: link onto a file, error", foundation: "path \"ROOT/a\", POSIX 2",
      ours: "no such step",
      why: "the same"),
    Difference(
      "delegate and errors", "goes on: link onto a file: asked", foundation: "[]",
      ours: "[\"link ROOT/a to ROOT/b\", \"CocoaError 516 linking ROOT/a to ROOT/b\"]",
      why: "the same"),
    Difference(
      "delegate and errors", "goes on: what is there", foundation: "*", ours: "*",
      why: "Foundation has copied over the file, told to go on; here the item is passed over"),
    Difference(
      "delegate and errors", "stops: copy of a directory onto a file, error",
      foundation: "path \"ROOT/b\", POSIX 17", ours: "path \"ROOT/d\", POSIX 17",
      why: "the error names the source, as for files"),
    Difference(
      "empty paths", "permissions of the working directory", foundation: "\"755\"", ours: "\"700\"",
      why: "Foundation's are the process's umask's"),
    Difference(
      "empty paths", "moveItem, error", foundation: "path \"ROOT/here\", POSIX 17",
      ours: "path \"\", POSIX 17",
      why: "an empty path names nothing; Foundation moves the working directory away"),
    Difference(
      "empty paths", "moveItem from", foundation: "ok", ours: "CocoaError 4",
      why: "the same"),
    Difference(
      "empty paths", "moveItem from, error", foundation: "no such step", ours: "path \"\", POSIX 2",
      why: "the same"),
    Difference(
      "empty paths", "what is there then", foundation: "[\"a = data '1'\", \"moved/\", \"moved/inner/\"]",
      ours: "[\"a = data '1'\", \"here/\", \"here/inner/\"]",
      why: "the same"),
    Difference(
      "empty paths", "removeItem with a delegate: asked",
      foundation: "[\"remove ROOT/moved\", \"CocoaError 4 removing ROOT/moved\"]",
      ours: "[\"remove \", \"CocoaError 4 removing \"]",
      why: "paths are handed on as they were passed"),
    Difference(
      "working directory", "list what is gone", foundation: "[]", ours: "CocoaError 260",
      why: "a directory that is gone cannot be listed"),
    Difference(
      "working directory", "list what is gone, error", foundation: "no such step",
      ours: "path \".\", POSIX 2",
      why: "the same"),
    Difference(
      "working directory", "rename below it", foundation: "\"ROOT/renamed\"", ours: "\"\"",
      why: "the working directory is kept as a path"),
    Difference(
      "resource values", "NSURLIsHiddenKey of .h", foundation: "false", ours: "true",
      why: "names with a dot in front are hidden, as enumerators have it"),
    Difference(
      "resource values", "NSURLIsWritableKey of *", foundation: "true", ours: "false", count: 2,
      onlyAsRoot: true,
      why: "Foundation answers root with yes"),
    Difference(
      "resource values", "* of d", foundation: "4096", ours: "nil", count: 2,
      why: "a directory has no contents"),
    Difference(
      "resource values", "NSURLLinkCountKey of d", foundation: "2", ours: "1",
      why: "directories have one name"),
    Difference(
      "resource values", "NSURLFileResourceTypeKey of *", foundation: "*", ours: "*", count: 5,
      why: "Foundation on Linux gives the type of `attributesOfItem`"),
    Difference(
      "resource values", "NSURLHasHiddenExtensionKey of *", foundation: "false", ours: "nil", count: 5,
      why: "nothing of a container"),
    Difference(
      "resource values", "NSURLIs*ImmutableKey of *", foundation: "false", ours: "nil", count: 10,
      why: "nothing of a container"),
    Difference(
      "resource values", "NSURLCanonicalPathKey of *", foundation: "*", ours: "*", count: 6,
      why: "not kept; see `path`"),
    Difference(
      "resource values", "NSURL* is there", foundation: "*", ours: "*", count: 6,
      why: "what is kept of a file differs"),
    Difference(
      "places", "place that does not exist", foundation: "*URLForDirectoryError*", ours: "CocoaError 256",
      why: "Foundation throws an error that it does not show"),
    Difference(
      "handles open", "*, error", foundation: "POSIX *", ours: "path *, POSIX *", count: 20,
      why: "errors hold the path, too"),
    Difference(
      "handle reads", "*, error", foundation: "*", ours: "path \"ROOT/a\", POSIX 9", count: 10,
      why: "errors hold the path and the cause"),
    Difference(
      "handle reads", "seek to the largest offset", foundation: "CocoaError 256", ours: "ok",
      why: "an offset is any number; what cannot be written fails when it is written"),
    Difference(
      "handle reads", "seek to the largest offset, error", foundation: "POSIX 22", ours: "no such step",
      why: "the same"),
    Difference(
      "handle writes", "*, error", foundation: "POSIX 9", ours: "path \"ROOT/a\", POSIX 9", count: 2,
      why: "errors hold the path, too"),
    Difference(
      "input stream", "read the rest", foundation: "\"0 ''\"", ours: "\"6 '456789'\"",
      why: "Foundation takes reading 0 bytes for the end"),
    Difference(
      "input stream", "*", foundation: "*", ours: "*", count: 5,
      why: "the same"),
    Difference(
      "input streams that fail", "d: *", foundation: "*", ours: "*", count: 5,
      why: "a directory is refused when it is opened, not when it is read"),
    Difference(
      "input streams that fail", "*: error*", foundation: "*CocoaError *", ours: "*POSIXError *", count: 9,
      why: "Foundation's error has the POSIX domain and can be taken for a CocoaError of that number"),
    Difference(
      "input streams that fail", "*: status when closed", foundation: "\"error\"", ours: "\"closed\"",
      count: 5,
      why: "what is closed is closed"),
    Difference(
      "output stream", "status after writing nothing", foundation: "\"atEnd\"", ours: "\"open\"",
      why: "Foundation takes writing 0 bytes for the end"),
    Difference(
      "output stream", "write after the seek", foundation: "-1", ours: "1",
      why: "the same"),
    Difference(
      "output stream", "contents after the seek", foundation: "data 'hello'", ours: "data 'hEllo'",
      why: "the same"),
    Difference(
      "output stream", "contents when closed", foundation: "data 'hello'", ours: "data 'hEllo'",
      why: "the same"),
    Difference(
      "output streams that append, and others", "a, appending",
      foundation: "\"open, 3 written, error none, offset nil, closed\"",
      ours: "\"open, 3 written, error none, offset 7, closed\"",
      why: "Foundation has no offset when appending"),
    Difference(
      "output streams that append, and others", "new2, appending",
      foundation: "\"open, 3 written, error none, offset nil, closed\"",
      ours: "\"open, 3 written, error none, offset 3, closed\"",
      why: "the same"),
    Difference(
      "output streams that append, and others", "toA, appending",
      foundation: "\"open, 3 written, error none, offset nil, closed\"",
      ours: "\"open, 3 written, error none, offset 10, closed\"",
      why: "the same"),
    Difference(
      "output streams that append, and others", "d, anew",
      foundation: "\"error, -1 written, error CocoaError 21, offset nil, error\"",
      ours: "\"error, -1 written, error POSIXError 21, offset nil, closed\"",
      why: "as for input streams"),
    Difference(
      "output streams that append, and others", "d, appending",
      foundation: "\"error, -1 written, error CocoaError 21, offset nil, error\"",
      ours: "\"error, -1 written, error POSIXError 21, offset nil, closed\"",
      why: "the same"),
    Difference(
      "output streams that append, and others", "no/x, anew",
      foundation: "\"error, -1 written, error CocoaError 2, offset nil, error\"",
      ours: "\"error, -1 written, error POSIXError 2, offset nil, closed\"",
      why: "the same"),
    Difference(
      "output streams that append, and others", "a/x, anew",
      foundation: "\"error, -1 written, error CocoaError 20, offset nil, error\"",
      ours: "\"error, -1 written, error POSIXError 20, offset nil, closed\"",
      why: "the same"),
    Difference(
      "output streams that append, and others", "permissions of a new file", foundation: "\"644\"",
      ours: "\"600\"",
      why: "Foundation's are the process's umask's"),
  ]

  /// Steps that differ and should not: each is a defect that is still to be mended, and then leaves this list.
  static let toBeMended: [(case: String, step: String)] = []
}
