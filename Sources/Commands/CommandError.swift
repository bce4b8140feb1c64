import ContainerStore

#if canImport(Glibc)
  import Glibc
#elseif canImport(Musl)
  import Musl
#elseif canImport(Darwin)
  import Darwin
#endif

/// Why a command cannot do its part, outside of any container.
struct CommandError: Error {
  enum Code: String, CaseIterable {
    case argumentNotUTF8, cipherMissing, diskFull, emptyPassphrase, keyFileSize, keyInUse, keyUnchanged,
      launcherNotInstalled, noPassphrase
    case nativeFailed, nativeMissing, noSuchKey, notConfirmed, outputClosed, passphraseCommandFailed
    case passphraseTooLong, passphrasesDiffer, pushMissing, tooFewDescriptors, tooManySecrets
  }

  let code: Code
  let path: String?
  let detail: String?
  /// That of the system call, where one failed.
  let errno: Int32

  init(_ code: Code, path: String? = nil, detail: String? = nil, errno: Int32 = 0) {
    self.code = code
    self.path = path
    self.detail = detail
    self.errno = errno
  }

  /// A failed system call.
  static func native(_ operation: String, _ path: String, _ errno: Int32) -> CommandError {
    if errno == ENOENT { return CommandError(.nativeMissing, path: path, errno: errno) }
    return CommandError(
      noSpace.contains(errno) ? .diskFull : .nativeFailed, path: path,
      detail: operation + ": " + String(cString: strerror(errno)), errno: errno)
  }
}

extension CommandError.Code {
  var what: String {
    switch self {
    case .argumentNotUTF8: "an argument is not UTF-8"
    case .cipherMissing: "libcrypto is not installed, or disagrees with libsodium"
    case .diskFull: "the disk is full"
    case .emptyPassphrase: "the passphrase is empty"
    case .keyFileSize: "a key file has exactly 32 bytes"
    case .keyInUse: "the container was opened with the key that is to go"
    case .keyUnchanged: "the new passphrase or key is the old one"
    case .launcherNotInstalled: "the launcher is not installed"
    case .nativeFailed: "the operating system reported an error"
    case .nativeMissing: "no such file or directory"
    case .noPassphrase: "no passphrase or key was given, and there is no terminal to ask on"
    case .noSuchKey: "no key of the container is called so"
    case .notConfirmed: "nothing was destroyed, as it was not confirmed"
    case .outputClosed: "nobody reads the output any more"
    case .passphraseCommandFailed: "the command that is to print the passphrase failed"
    case .passphraseTooLong: "the passphrase is too long"
    case .passphrasesDiffer: "the two passphrases differ"
    case .pushMissing: "dynamics-push is not installed"
    case .tooFewDescriptors: "the system lets this process open too few files"
    case .tooManySecrets: "the environment has more than one place for the passphrase or key"
    }
  }

  var remedy: String {
    switch self {
    case .argumentNotUTF8: "rename the file; a container takes names in UTF-8 only"
    case .cipherMissing: "use --cipher libsodium, or leave the option out"
    case .diskFull: "free some space there, and try again"
    case .emptyPassphrase: "put the passphrase on the first line"
    case .keyFileSize: "make one with: head -c 32 /dev/urandom > FILE"
    case .keyInUse: "open it with a key that stays"
    case .keyUnchanged: "choose another"
    case .launcherNotInstalled: "dynamics launcher --install makes its key, and approves it"
    case .nativeFailed: "check the path and its permissions"
    case .nativeMissing: "check the path"
    case .noPassphrase: "give a passphrase file, a key file or the environment variable; see --help"
    case .noSuchKey: "dynamics container key list shows ids and labels"
    case .notConfirmed: "type the name of the directory, or give --yes"
    case .outputClosed: "nothing to do"
    case .passphraseCommandFailed: "run it by itself and see what it says"
    case .passphraseTooLong: "the first line has at most \(SecretInput.passphraseByteCountMax) bytes"
    case .passphrasesDiffer: "start again"
    case .pushMissing:
      "build it (swift build -c release --traits Push --product dynamics-push), and put it beside dynamics or into PATH"
    case .tooFewDescriptors: "raise the limit: ulimit -n"
    case .tooManySecrets: "leave one of them, or give an option"
    }
  }

  func status(errno: Int32) -> ExitStatus {
    switch self {
    case .argumentNotUTF8, .noPassphrase, .notConfirmed, .tooManySecrets: .usage
    case .emptyPassphrase, .keyFileSize, .passphraseCommandFailed, .passphraseTooLong, .passphrasesDiffer:
      .wrongKey
    case .cipherMissing, .keyInUse, .keyUnchanged, .tooFewDescriptors: .failure
    case .diskFull: .diskFull
    case .launcherNotInstalled, .nativeMissing, .noSuchKey, .pushMissing: .notFound
    case .outputClosed: .signal(SIGPIPE)
    case .nativeFailed:
      switch errno {
      case EEXIST, EISDIR, ENOTDIR, ENOTEMPTY: .inTheWay
      default: .failure
      }
    }
  }
}
