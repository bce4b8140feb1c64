import Foundation

extension Case {
  static let locations: [Case] = [
    Case(name: "resource values") { w in
      let m = w.manager
      try w.make("a.txt", "12345")
      try w.make(".h")
      try w.makeDirectory("d")
      try w.makeLink("toA", to: "a.txt")
      try w.makeLink("dangling", to: "missing")
      let date = Date(timeIntervalSince1970: 1000)
      try m.setAttributes([.modificationDate: date, .posixPermissions: 0o400], ofItemAtPath: w.path("a.txt"))
      for key in [
        .nameKey, .localizedNameKey, .isRegularFileKey, .isDirectoryKey, .isSymbolicLinkKey, .isHiddenKey,
        .isPackageKey, .isVolumeKey,
        .isReadableKey, .isWritableKey, .isExecutableKey, .fileSizeKey, .totalFileSizeKey, .linkCountKey,

        .fileResourceTypeKey, .parentDirectoryURLKey, .pathKey, .hasHiddenExtensionKey, .isUserImmutableKey,
        .isSystemImmutableKey,
        .fileSecurityKey, .documentIdentifierKey, .canonicalPathKey, .isAliasFileKey, .isMountTriggerKey,
      ] as [URLResourceKey] {
        for name in ["a.txt", "d", "toA", "dangling", ".h"] {
          w.step("\(key.rawValue) of \(name)") {
            try w.resourceValues([key], at: w.url(name, isDirectory: name == "d"))[key]
          }
        }
      }
      for key in [
        .contentModificationDateKey, .creationDateKey, .attributeModificationDateKey, .contentAccessDateKey,
        .fileAllocatedSizeKey,
        .totalFileAllocatedSizeKey, .volumeURLKey,
        .fileResourceIdentifierKey, .volumeIdentifierKey, .generationIdentifierKey, .volumeTotalCapacityKey,
        .volumeAvailableCapacityKey,
        .preferredIOBlockSizeKey,
      ] as [URLResourceKey] {
        w.step("\(key.rawValue) is there") {
          try w.resourceValues([key], at: w.url("a.txt"))[key] != nil
        }
      }
      w.step("date") {
        try w.resourceValues([.contentModificationDateKey], at: w.url("a.txt"))[
          .contentModificationDateKey]
      }
      w.step("of something missing") {
        try w.resourceValues([.fileSizeKey], at: w.url("missing")).count
      }
    },
    Case(name: "relationships") { w in
      let m = w.manager
      try w.makeDirectory("a/b")
      try w.makeDirectory("ab")
      try w.make("a/f")
      try w.makeLink("toA", to: "a")
      for (one, other) in [
        ("a", "a"), ("a", "a/b"), ("a", "a/f"), ("a", "ab"), ("a/b", "a"), ("toA", "a"), ("a", "toA"),
        ("toA", "a/f"), ("", "a"), ("a", "toA/f"),
        ("a", "missing"), ("missing", "a"), ("missing", "missing"), ("a", "a/missing"), ("a/f", "a/f"),
      ] {
        w.step("'\(one)' and '\(other)'") {
          var relationship = FileManager.URLRelationship.other
          try m.getRelationship(&relationship, ofDirectoryAt: w.url(one), toItemAt: w.url(other))
          return relationship == .same ? "same" : relationship == .contains ? "contains" : "other"
        }
      }
    },
    Case(name: "places") { w in
      let m = w.manager
      for (name, place) in [
        ("user", .userDirectory), ("documents", .documentDirectory),
        ("autosaved", .autosavedInformationDirectory),
        ("desktop", .desktopDirectory), ("caches", .cachesDirectory),
        ("support", .applicationSupportDirectory),
        ("downloads", .downloadsDirectory), ("movies", .moviesDirectory), ("music", .musicDirectory),
        ("public", .sharedPublicDirectory), ("pictures", .picturesDirectory), ("trash", .trashDirectory),
        ("application", .applicationDirectory), ("library", .libraryDirectory),
        ("developer", .developerDirectory),
        ("documentation", .documentationDirectory), ("core service", .coreServiceDirectory),
        ("printers", .printerDescriptionDirectory),
        ("input methods", .inputMethodsDirectory), ("preference panes", .preferencePanesDirectory),
        ("replacement", .itemReplacementDirectory), ("scripts", .applicationScriptsDirectory),
        ("all", .allApplicationsDirectory),
      ] as [(String, FileManager.SearchPathDirectory)] {
        for (domain, mask) in [
          ("user", .userDomainMask), ("local", .localDomainMask), ("system", .systemDomainMask),
          ("network", .networkDomainMask), ("all", .allDomainsMask),
        ] as [(String, FileManager.SearchPathDomainMask)] {
          w.step("\(name) in \(domain)") { m.urls(for: place, in: mask).isEmpty ? "none" : "there" }
        }
      }
      w.step("replacement directory is made") {
        try w.make("a")
        let url = try m.url(
          for: .itemReplacementDirectory, in: .userDomainMask, appropriateFor: w.url("a"), create: false)
        defer { try? m.removeItem(at: url) }
        return m.fileExists(atPath: url.path)
      }
      w.step("replacement directories differ") {
        let urls = try (0..<2).map { _ in
          try m.url(
            for: .itemReplacementDirectory, in: .userDomainMask, appropriateFor: w.url("a"), create: true)
        }
        defer { for url in urls { try? m.removeItem(at: url) } }
        return urls[0] != urls[1]
      }
      w.step("place that does not exist") {
        try m.url(
          for: .developerDirectory, in: .userDomainMask, appropriateFor: nil, create: false
        ).path
      }
      w.step("home of nobody") { m.homeDirectory(forUser: "") == nil }
      w.step("home of somebody unknown") { m.homeDirectory(forUser: "no such user") == nil }
      w.step("temporary directory has a slash") { m.temporaryDirectory.hasDirectoryPath }
      w.step("home has a slash") { m.homeDirectoryForCurrentUser.hasDirectoryPath }
    },
  ]
}
