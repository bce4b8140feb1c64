/// The reason why an operation on a container failed.
///
/// Match with `catch ContainerError.locked`. The description states the failure and the remedy. It
/// never holds a key, contents, or a name from inside the container: the path is a property of its
/// own.
public struct ContainerError: Error, Sendable {
  public enum Code: String, Sendable, CaseIterable {
    case alreadyExists, cancelled, cannotStore, catalogDamaged, closed, directoryNotEmpty, diskFull,
      fileDamaged
    case fileExists, invalidArgument, invalidName, ioFailed, isADirectory, journalAltered, journalDamaged,
      locked
    case moveIntoItself, noFreeKeySlot, noSuchFile, notAContainer, notADirectory, notASymbolicLink,
      notPermitted
    case notSupported, readOnly, replaced, rolledBack, sourceChanged, superblockAltered, superblockTorn,
      tableDamaged
    case tooManyLinks, unsupportedFormat, wrongKey
  }

  public let code: Code
  /// The requested path, inside the container or native.
  public let path: String?
  /// The observed and the expected values, without names.
  public let detail: String?
  public let cause: (any Error)?
  let circumstance: Circumstance

  public init(_ code: Code, path: String? = nil, detail: String? = nil, cause: (any Error)? = nil) {
    self.init(code, path: path, detail: detail, cause: cause, circumstance: .usual)
  }

  /// An error of the native file system at `nativePath`. The remedy, too, is for the native file
  /// system.
  public init(_ code: Code, nativePath: String, detail: String? = nil, cause: (any Error)? = nil) {
    self.init(code, path: nativePath, detail: detail, cause: cause, circumstance: .native)
  }

  init(
    _ code: Code, path: String?, detail: String? = nil, cause: (any Error)? = nil, circumstance: Circumstance
  ) {
    self.code = code
    self.path = path
    self.detail = detail
    self.cause = cause
    self.circumstance = circumstance
  }

  package func with(detail: String) -> ContainerError {
    ContainerError(code, path: path, detail: detail, cause: cause, circumstance: circumstance)
  }

  func with(path: String) -> ContainerError {
    ContainerError(
      code, path: self.path ?? path, detail: detail, cause: cause, circumstance: circumstance)
  }
}

/// An error of another type that carries a container error. `catch ContainerError.noSuchFile`
/// matches it, too.
public protocol ContainerErrorCarrying: Error {
  var containerError: ContainerError? { get }
}

extension ContainerError: CustomStringConvertible {
  public var description: String {
    [what + (detail.map { ": " + $0 } ?? ""), remedy].joined(separator: "; ")
  }
}

extension ContainerError {
  public static let alreadyExists = Code.alreadyExists
  public static let cancelled = Code.cancelled
  public static let cannotStore = Code.cannotStore
  public static let catalogDamaged = Code.catalogDamaged
  public static let closed = Code.closed
  public static let directoryNotEmpty = Code.directoryNotEmpty
  public static let diskFull = Code.diskFull
  public static let fileDamaged = Code.fileDamaged
  public static let fileExists = Code.fileExists
  public static let invalidArgument = Code.invalidArgument
  public static let invalidName = Code.invalidName
  public static let ioFailed = Code.ioFailed
  public static let isADirectory = Code.isADirectory
  public static let journalAltered = Code.journalAltered
  public static let journalDamaged = Code.journalDamaged
  public static let locked = Code.locked
  public static let moveIntoItself = Code.moveIntoItself
  public static let noFreeKeySlot = Code.noFreeKeySlot
  public static let noSuchFile = Code.noSuchFile
  public static let notAContainer = Code.notAContainer
  public static let notADirectory = Code.notADirectory
  public static let notASymbolicLink = Code.notASymbolicLink
  public static let notPermitted = Code.notPermitted
  public static let notSupported = Code.notSupported
  public static let readOnly = Code.readOnly
  public static let replaced = Code.replaced
  public static let rolledBack = Code.rolledBack
  public static let sourceChanged = Code.sourceChanged
  public static let superblockAltered = Code.superblockAltered
  public static let superblockTorn = Code.superblockTorn
  public static let tableDamaged = Code.tableDamaged
  public static let tooManyLinks = Code.tooManyLinks
  public static let unsupportedFormat = Code.unsupportedFormat
  public static let wrongKey = Code.wrongKey
}

extension ContainerError.Code {
  public static func ~= (code: ContainerError.Code, error: any Error) -> Bool {
    let containerError = error as? ContainerError ?? (error as? any ContainerErrorCarrying)?.containerError
    return containerError?.code == code
  }

  public var what: String {
    switch self {
    case .alreadyExists: "something is already at the place of the new container"
    case .cancelled: "cancelled"
    case .cannotStore: "this kind of file cannot be stored in a container"
    case .catalogDamaged: "the catalog contradicts itself"
    case .closed: "the container is closed"
    case .directoryNotEmpty: "the directory is not empty"
    case .diskFull: "the disk is full"
    case .fileDamaged: "the file is damaged"
    case .fileExists: "a file or directory of that name exists"
    case .invalidArgument: "this cannot be asked for"
    case .invalidName: "this is not a name that a container takes"
    case .ioFailed: "the operating system reported an error"
    case .isADirectory: "this is a directory"
    case .journalAltered: "the journal was altered"
    case .journalDamaged: "a part of the journal that was durable is damaged"
    case .locked: "another process has the container open for writing"
    case .moveIntoItself: "a directory cannot be moved or copied into itself"
    case .noFreeKeySlot: "all key slots are in use"
    case .noSuchFile: "no such file or directory"
    case .notAContainer: "this is not a container"
    case .notADirectory: "a part of the path is not a directory"
    case .notASymbolicLink: "this is not a symbolic link"
    case .notPermitted: "the operating system does not permit it"
    case .notSupported: "this does not exist in a container"
    case .readOnly: "the container is open for reading only"
    case .replaced: "the container was removed or replaced while it was open"
    case .rolledBack: "an older superblock was put back: files of a later state are there"
    case .sourceChanged: "the source changed while it was read"
    case .superblockAltered: "the superblock was altered by somebody without the key"
    case .superblockTorn: "both copies of the superblock are torn or overwritten"
    case .tableDamaged: "a table of the catalog is damaged"
    case .tooManyLinks: "too many symbolic links lead to one another"
    case .unsupportedFormat: "this version does not read the format of this container"
    case .wrongKey: "the passphrase or key does not open this container"
    }
  }

  public var remedy: String {
    switch self {
    case .alreadyExists: "choose another place, or remove what is there"
    case .cancelled: "nothing half done was left behind; start again when you like"
    case .cannotStore: "leave it out, or store what it points to"
    case .catalogDamaged: "restore the container from a backup, and report how it came about"
    case .closed: "open it again"
    case .directoryNotEmpty: "remove its contents first, or remove recursively"
    case .diskFull:
      "what was asked for was not done; free some space, open the container again if it has become read-only, and try again"
    case .fileDamaged: "other files can still be read; restore this one from a backup"
    case .fileExists: "choose another name, or remove the other first"
    case .invalidArgument: "see the documentation of the call"
    case .invalidName: "names have 1 to 255 bytes, no slash, no NUL, and are not . or .."
    case .ioFailed: "see the cause; nothing that was acknowledged as durable is lost"
    case .isADirectory: "name a file, or ask for the directory recursively"
    case .journalAltered, .journalDamaged, .superblockAltered, .superblockTorn, .tableDamaged:
      "restore the container from a backup"
    case .locked: "wait until it is closed, or end that process"
    case .moveIntoItself: "choose a destination outside it"
    case .noFreeKeySlot: "remove a key first; there are eight slots"
    case .noSuchFile: "look at the directory's list; names are compared byte by byte"
    case .notAContainer: "name the directory that was given when the container was created"
    case .notADirectory: "check the path"
    case .notASymbolicLink: "ask for the attributes first"
    case .notPermitted: "check owner and permissions"
    case .notSupported: "see the documentation for what takes its place"
    case .readOnly: "open it for writing; after a failed write, close it and open it again"
    case .replaced:
      "what is there now was left as it is, and later changes of this opening are lost; close it and open what is there"
    case .rolledBack:
      "put the newer superblock back, or accept the older state (acceptsOlderState); nothing was removed"
    case .sourceChanged: "nothing was stored; try again when nobody writes to it"
    case .tooManyLinks: "look where the links on the path lead"
    case .unsupportedFormat: "open it with the version of OpenDynamics that wrote it, or a newer one"
    case .wrongKey: "check which passphrase or key file belongs to it; the data is untouched"
    }
  }
}
