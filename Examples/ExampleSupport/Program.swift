// This module holds what the example programs have in common.
public import AppKinetics
@preconcurrency import Dispatch
import Foundation

/// Opens an app's container.
public func openContainer(_ path: String, _ passphrase: String) async throws -> SecureContainer {
  try await SecureContainer.open(at: URL(fileURLWithPath: path), passphrase: SecretBytes(utf8: passphrase))
}

/// Makes an app's container at the first start, and opens it at every other.
public func openOrCreateContainer(_ path: String, _ passphrase: String) async throws -> SecureContainer {
  guard !FileManager.default.fileExists(atPath: path) else {
    return try await openContainer(path, passphrase)
  }
  return try await SecureContainer.create(
    at: URL(fileURLWithPath: path), passphrase: SecretBytes(utf8: passphrase))
}

/// Prints a line at once, also when nobody looks at a terminal.
public func say(_ line: String) { FileHandle.standardOutput.write(Data((line + "\n").utf8)) }

/// Ends the program with a line of errors.
public func fail(_ line: String, _ code: Int32) -> Never {
  FileHandle.standardError.write(Data((line + "\n").utf8))
  exit(code)
}

/// Returns a stream of SIGINT and SIGTERM, which do not end the program by themselves once it has returned.
public func interruptions() -> AsyncStream<Int32> {
  AsyncStream { continuation in
    let sources = [SIGINT, SIGTERM].map { number in
      let isRegistered = DispatchSemaphore(value: 0)
      let source = DispatchSource.makeSignalSource(signal: number)
      source.setEventHandler { continuation.yield(number) }
      source.setRegistrationHandler {
        // Apple's sources do not keep a signal from ending the program.
        #if canImport(Darwin)
          signal(number, SIG_IGN)
        #endif
        isRegistered.signal()
      }
      source.resume()
      isRegistered.wait()
      return source
    }
    continuation.onTermination = { _ in for source in sources { source.cancel() } }
  }
}
