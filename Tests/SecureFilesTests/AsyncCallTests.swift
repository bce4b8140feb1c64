import BlockingCalls
import Foundation
import Locks
import SecureFiles
import SodiumPrimitives
import TestSupport
import Testing

/// Asynchronous calls leave the thread of their task, which is one of a pool as wide as the machine, free for others.
@Suite(.enabled(if: BlockingCalls.areSeen)) struct AsyncCallTests {
  private let directory = TemporaryDirectory()
  private var url: URL { directory.url.appending(path: "container") }

  private var options: Container.Options {
    var options = Container.Options()
    options.passwordHash = PasswordHash.Parameters(passes: 1, memoryKiB: 8)
    return options
  }

  /// Else the tests below could not fail.
  @Test func synchronousCallsBlock() async throws {
    let calls = try await BlockingCalls.during {
      func create() throws {
        try SecureContainer.create(at: url, passphrase: Self.passphrase(), options: options).close()
      }
      try create()
      try FileManager.default.removeItem(at: url)
    }
    for name in ["fdatasync", "pwrite", "pread", "mkdir", "unlinkat"] {
      #expect(calls.contains(name), "\(name) is not among \(Set(calls).sorted())")
    }
  }

  @Test func aContainerIsMadeOpenedAndClosed() async throws {
    let calls = try await BlockingCalls.during {
      var container = try await SecureContainer.create(
        at: url, passphrase: Self.passphrase(), options: options)
      try await container.synchronize()
      try await container.close()
      let hashCount = Guarded(0)
      container = try await SecureContainer.open(
        at: url, passphrase: Self.passphrase(), beforeHash: { _ in hashCount.withLock { $0 += 1 } })
      #expect(hashCount.withLock { $0 } == 1)
      let key = container.store.openingKey
      #expect(try await container.holds(passphrase: Self.passphrase(), key: key))
      #expect(try await !container.holds(passphrase: SecretBytes(utf8: "other"), key: key))
      try await container.close()
      let other = url.appendingPathExtension("key")
      container = try await SecureContainer.create(at: other, rawKey: SecretBytes(utf8: Self.rawKey))
      try await container.close()
      container = try await SecureContainer.open(
        at: other, rawKey: SecretBytes(utf8: Self.rawKey), mode: .readOnly)
      try await container.close()
    }
    #expect(calls == [])
  }

  private static let rawKey = String(repeating: "k", count: 32)

  private static func passphrase() throws -> SecretBytes { try SecretBytes(utf8: "correct horse") }

  @Test func errorsAreThoseOfTheSynchronousForms() async throws {
    let container = try await SecureContainer.create(at: url, passphrase: Self.passphrase(), options: options)
    await #expect(throws: SecureFilesError.self) {
      try await SecureContainer.open(at: url, passphrase: Self.passphrase())
    }
    try await container.close()
    try await container.close()
    await #expect {
      try await SecureContainer.open(at: url, passphrase: SecretBytes(utf8: "wrong"))
    } throws: {
      ($0 as? SecureFilesError)?.code == .wrongKey
    }
    await #expect {
      try await SecureContainer.create(at: url, rawKey: SecretBytes(utf8: "short"))
    } throws: {
      ($0 as? SecureFilesError)?.code == .invalidArgument
    }
    await #expect {
      try await SecureContainer.create(at: url, passphrase: Self.passphrase())
    } throws: {
      ($0 as? SecureFilesError)?.code == .alreadyExists
    }
  }

  @Test func filesAreReadWrittenCopiedAndListed() async throws {
    let container = try await SecureContainer.create(at: url, passphrase: Self.passphrase(), options: options)
    let receiver = try await SecureContainer.create(
      at: url.appendingPathExtension("receiver"), passphrase: Self.passphrase(), options: options)
    let files = container.files
    let calls = try await BlockingCalls.during {
      try await files.write(pattern(3 << 20), toPath: "/a", progress: nil)
      try await files.copyItem(atPath: "/a", toPath: "/b", progress: nil)
      let contents = try await files.contents(atPath: "/b", progress: nil)
      #expect(contents.count == 3 << 20)
      var count = 0
      for try await _ in files.items(atPath: "/") { count += 1 }
      #expect(count == 2)
      let receipt = try await container.send(["/a"], to: receiver, sender: "com.example.sender")
      #expect(receipt.byteCount == 3 << 20)
    }
    #expect(calls == [])
    try await container.close()
    try await receiver.close()
  }
}
