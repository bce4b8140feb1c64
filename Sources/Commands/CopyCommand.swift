import ArgumentParser
import ContainerStore

struct CopyCommand: ParsableCommand {
  static let configuration = CommandConfiguration(
    commandName: "cp",
    abstract: "Copies files and folders inside a container, into it, out of it, or to another.",
    usage: "dynamics cp [OPTIONS] DIR FROM TO\ndynamics cp [OPTIONS] FROM… TO",
    discussion: """
      With DIR, FROM and TO are paths in that container. Without, one of them at least is CONTAINER:/path, and the others are native; \
      a native name with a colon is written ./a:b. An existing folder TO takes FROM inside; an existing file TO is replaced by a \
      file. A second container, which is TO's, is opened with the --to options.
      """)

  @Argument(help: "What to copy, and where to.", completion: .file())
  var operands: [String]

  @OptionGroup var credential: CredentialOptions
  @OptionGroup var receiverCredential: ReceiverCredentialOptions
  @OptionGroup var bulk: BulkOptions
  @OptionGroup var damage: DamageOptions
  @OptionGroup var sources: SourceOptions

  @Flag(
    name: [.short, .customShort("R"), .long],
    help: "As -P; folders are copied with everything in them anyway.")
  var recursive = false

  @Flag(
    name: [.customShort("P"), .customShort("d"), .customLong("no-dereference")],
    help: "A symbolic link FROM is copied as a link; without, what it leads to is.")
  var noDereference = false

  @Flag(name: [.customShort("f"), .customLong("force")], help: "Existing files are replaced anyway.")
  var force = false

  @Flag(name: [.customShort("n"), .customLong("no-clobber")], help: "Leaves existing files as they are.")
  var noClobber = false

  @Flag(name: .shortAndLong, help: "Prints what was copied, and where to.")
  var verbose = false

  @Flag(
    name: [.customShort("p"), .customLong("preserve")],
    help: "Keeps folders' dates, too, and between containers everything that is known of files.")
  var preserve = false

  @Flag(name: [.customShort("a"), .customLong("archive")], help: "As -p and -P.")
  var archive = false

  func validate() throws {
    if force, noClobber { throw ValidationError("Give -f or -n, not both.") }
    _ = try CopyForm(operands)
  }

  func run() throws {
    let form = try CopyForm(operands)
    let (damage, unreadable) = (damage.report(), sources.report())
    try copy(form, with: copier(damage, unreadable))
    try damage?.finish()
    try unreadable?.finish()
  }

  private func copy(_ form: CopyForm, with copier: TreeCopier) throws {
    let options = try bulk.containerOptions()
    switch form {
    case .inside(let directory, let from, let to):
      let secret = try credential.secret(for: directory)
      try withContainer(at: directory, secret, mode: .readWrite, options: options, findings: bulk.findings) {
        container in
        // Here a slash behind TO makes no folder, as it never did.
        let place = try container.isDirectory(to) ? try container.place(of: from, at: to) : to
        try copier.copy(.container(container, from), to: .container(container, place))
      }
    case .into(let sources, let target):
      let other = sources.lazy.compactMap(\.address).first.map(\.directory)
      guard let other, try !NativeFile.isSame(other, target.directory) else {
        let secret = try credential.secret(for: target.directory)
        return try withContainer(
          at: target.directory, secret, mode: .readWrite, options: options, findings: bulk.findings
        ) {
          try copyAll(sources, from: $0, to: target.path, in: $0, with: copier)
        }
      }
      let secret = try credential.secret(for: other)
      let targetSecret = try receiverCredential.secret(for: target.directory)
      try withContainer(at: other, secret, mode: .readOnly, options: options, findings: bulk.findings) {
        source in
        try withContainer(
          at: target.directory, targetSecret, mode: .readWrite, options: options, findings: bulk.findings
        ) {
          try copyAll(sources, from: source, to: target.path, in: $0, with: copier)
        }
      }
    case .outOf(let sources, let local):
      let destination = try NativeDestination(local)
      if sources.count > 1, destination.kind != .directory {
        throw destination.kind == .missing
          ? CommandError(.nativeMissing, path: local, detail: "the folder for several files")
          : ContainerError(.notADirectory, nativePath: local)
      }
      let secret = try credential.secret(for: sources[0].directory)
      try withContainer(
        at: sources[0].directory, secret, mode: .readOnly, options: options, findings: bulk.findings
      ) { container in
        for source in sources { try copyOut(source.path, of: container, to: destination, with: copier) }
      }
    }
  }

  private var keepsLinks: Bool { recursive || noDereference || archive }

  private func copier(_ damage: DamageReport?, _ unreadable: DamageReport?) -> TreeCopier {
    TreeCopier(
      title: "cp", noClobber: noClobber, verbose: verbose, preserve: preserve || archive,
      keepsLinks: keepsLinks, bulk: bulk, damage: damage, unreadable: unreadable)
  }

  private func copyAll(
    _ sources: [CopyOperand], from source: Container, to path: String, in target: Container,
    with copier: TreeCopier
  ) throws {
    if sources.count > 1, !PathText.endsWithSlash(path) {
      guard try target.existing(path, followingLinks: true).kind == .directory else {
        throw ContainerError(.notADirectory, path: path, detail: "several files need a folder")
      }
    }
    for operand in sources {
      switch operand {
      case .native(let local):
        if keepsLinks, try local != "-" && NativeFile.isLink(local) {
          let place = try target.place(of: local, at: path)
          try makeParents(of: place, in: target)
          try copier.copy(.native(local), to: .container(target, place))
          continue
        }
        let kind = local == "-" ? .stream : try NativeKind(at: local)
        switch kind {
        case .missing: throw CommandError(.nativeMissing, path: local)
        case .stream:
          let place = local == "-" ? path : try target.place(of: local, at: path)
          if noClobber, try target.attributes(at: place) != nil { continue }
          try target.importStream(local, to: place, title: "cp", bulk: bulk)
          if verbose { try TreeCopier.report(local, place) }
        case .file, .directory:
          let place = try target.place(of: local, at: path)
          try copier.copy(.native(local), to: .container(target, place))
        }
      case .container(let address):
        _ = try source.existing(address.path, followingLinks: !keepsLinks)
        let place = try target.place(of: address.path, at: path)
        try makeParents(of: place, in: target)
        try copier.copy(.container(source, address.path), to: .container(target, place))
      }
    }
  }

  private func makeParents(of place: String, in target: Container) throws {
    for directory in try target.missingParents(of: place) { try target.createDirectory(directory) }
  }

  private func copyOut(
    _ path: String, of container: Container, to destination: NativeDestination, with copier: TreeCopier
  ) throws {
    let isStream = destination.kind == .stream
    let attributes = try container.existing(path, followingLinks: isStream || !keepsLinks)
    if isStream {
      try container.exportStream(path, to: destination.local, title: "cp", bulk: bulk)
      if verbose { StandardError.write(TreeCopier.line(path, destination.local)) }
      return
    }
    let place = try destination.place(of: path, attributes)
    try copier.copy(.container(container, path), to: .native(place))
  }
}
