import ArgumentParser
import Foundation
import NIOSSL
import PushWire

/// What the program could not do, and what the user can do about it. The program ends with code 1.
struct Failure: Error, CustomStringConvertible {
  let description: String

  init(_ description: String) { self.description = description }
}

/// A value of the user, and the name under which it was given: an option, a variable or a key of a file.
struct NamedValue: Sendable, CustomStringConvertible {
  let value: String
  let source: String

  /// Begins a message about the value.
  var description: String { "\(source) \(value.isEmpty ? "''" : value)" }
}

/// The system's text for an error number, as part of a sentence.
func systemReason(_ code: Int32 = errno) -> String {
  let text = String(cString: strerror(code))
  return text.prefix(1).lowercased() + text.dropFirst()
}

/// The cause of an error of Foundation, without Foundation's names and without its sentences.
func reason(_ error: any Error) -> String {
  let error = error as NSError
  let cause = error.userInfo[NSUnderlyingErrorKey] as? NSError ?? error
  if cause.domain == NSPOSIXErrorDomain { return systemReason(Int32(cause.code)) }
  return switch CocoaError.Code(rawValue: error.code) {
  case .fileReadNoPermission, .fileWriteNoPermission: systemReason(EACCES)
  case .fileNoSuchFile, .fileReadNoSuchFile: systemReason(ENOENT)
  case .fileWriteFileExists: systemReason(EEXIST)
  case .fileWriteVolumeReadOnly: systemReason(EROFS)
  case .fileWriteOutOfSpace: systemReason(ENOSPC)
  default: "the system refuses it"
  }
}

/// The contents of a file that the user has named.
func contents(of file: NamedValue) throws -> Data {
  let descriptor = open(file.value, O_RDONLY | O_CLOEXEC)
  guard descriptor >= 0 else { throw Failure("\(file): \(systemReason())") }
  var status = stat()
  guard fstat(descriptor, &status) == 0, status.st_mode & S_IFMT != S_IFDIR else {
    close(descriptor)
    throw Failure("\(file) is a directory; give a file")
  }
  do {
    return try FileHandle(fileDescriptor: descriptor, closeOnDealloc: true).readToEnd() ?? Data()
  } catch {
    throw Failure("\(file) cannot be read: \(reason(error))")
  }
}

/// Makes a directory that the user has named, readable for its owner alone, if there is none.
func makeDirectory(_ directory: NamedValue) throws -> URL {
  let url = URL(fileURLWithPath: directory.value)
  var isDirectory: ObjCBool = false
  if FileManager.default.fileExists(atPath: url.path, isDirectory: &isDirectory) {
    guard isDirectory.boolValue else { throw Failure("\(directory) is a file; give a directory") }
  } else {
    var path = ""
    for name in url.pathComponents {
      path += name == "/" || path.hasSuffix("/") ? name : "/" + name
      guard mkdir(path, 0o700) == 0 || errno == EEXIST else {
        throw Failure("\(directory) cannot be made: \(systemReason())")
      }
    }
  }
  guard access(url.path, R_OK | W_OK | X_OK) == 0 else {
    throw Failure(
      "\(directory) cannot be used: \(systemReason()); check its owner and permissions, or give another one")
  }
  return url
}

/// Throws when a file has no certificates of authorities.
func checkAuthorities(_ file: NamedValue) throws {
  let certificates = try? NIOSSLCertificate.fromPEMBytes(Array(contents(of: file)))
  if certificates == nil { _ = try contents(of: file) }
  guard let certificates, !certificates.isEmpty else {
    throw Failure("\(file) has no certificate in PEM form")
  }
}

/// The certificate that `dynamics-push relay` makes in its default directory: it certifies a relay on this
/// machine.
func ownAuthority(for relay: URL) -> String? {
  let file = "push-relay/loopback.pem"
  return Loopback.isHost(relay.host() ?? "") && FileManager.default.fileExists(atPath: file) ? file : nil
}

func writeError(_ line: String) {
  FileHandle.standardError.write(Data((line + "\n").utf8))
}
