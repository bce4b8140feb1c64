import ContainerStore
import Foundation
import Locks
import SodiumPrimitives

/// The state file of a runtime, in a directory that this process has for itself.
///
/// The file is replaced as a whole and synced, so that a reader finds the old state or the new one.
final class StateFile: Sendable {
  private static let name = "state"
  private static let temporaryName = "state.new"
  private static let lockName = "lock"
  private static let heading = "dynamics-runtime 1"
  /// The management file takes 4/3 of its bytes, blocks and times some 200 KB.
  static let byteCountMax = 4 << 20

  private let io: any BlockIO
  private let lock: any BlockFile
  private let isHeld = Guarded(true)

  /// Locks the directory, and makes it when it is missing. Throws `alreadyRunning` and `stateUnusable`.
  init(_ io: any BlockIO) throws(AppRuntimeError) {
    self.io = io
    do {
      if !io.isThere { try io.createDirectory("") }
      lock = try Self.locked(io)
    } catch let error as AppRuntimeError {
      throw error
    } catch {
      throw AppRuntimeError(.stateUnusable, path: io.place, cause: error)
    }
  }

  deinit { letGo() }

  /// Another process may have the directory from now on.
  func letGo() {
    let wasHeld = isHeld.withLock { isHeld in
      defer { isHeld = false }
      return isHeld
    }
    if wasHeld { lock.unlock(.writer) }
  }

  private static func locked(_ io: any BlockIO) throws -> any BlockFile {
    while true {
      let file: any BlockFile
      do throws(IOFailure) {
        file = try io.open(lockName, .readWrite)
      } catch {
        guard try io.identity(of: lockName) == nil else { throw error }
        file = try io.open(lockName, .createNew)
      }
      guard try file.tryLock(.writer, exclusive: true) else {
        throw AppRuntimeError(.alreadyRunning, path: io.place)
      }
      // Another process may have removed it in between.
      if try io.leads(lockName, to: file) { return file }
    }
  }

  /// The state of a directory that another process may have; nil when it cannot be read.
  static func peek(_ io: any BlockIO) -> RuntimeState? { try? read(io) }

  private static func read(_ io: any BlockIO) throws(IOFailure) -> RuntimeState? {
    guard let file = try io.openIfReadable(name, .read) else { return nil }
    let count = try file.size()
    guard count <= byteCountMax else { return nil }
    return state(Data(try file.read(Int(count), at: 0)))
  }

  /// The state; nil when there is none, or it is damaged.
  func read() throws(AppRuntimeError) -> RuntimeState? {
    do throws(IOFailure) {
      return try Self.read(io)
    } catch {
      throw AppRuntimeError(.stateUnusable, path: io.place, cause: error)
    }
  }

  /// Replaces the state. It is durable when this returns.
  func write(_ state: RuntimeState) throws(AppRuntimeError) {
    do {
      guard isHeld.withLock({ $0 }), try io.leads(Self.lockName, to: lock) else {
        throw AppRuntimeError(.stateUnusable, path: io.place, detail: "its lock was removed or replaced")
      }
      let bytes = [UInt8](try Self.bytes(of: state))
      // What could not be read again would be as good as lost.
      guard bytes.count <= Self.byteCountMax else {
        throw AppRuntimeError(.stateUnusable, path: io.place, detail: "it has \(bytes.count) bytes")
      }
      if try io.identity(of: Self.temporaryName) != nil { try io.remove(Self.temporaryName) }
      let file = try io.open(Self.temporaryName, .createNew)
      try file.write(bytes, at: 0)
      try file.synchronize()
      try io.rename(Self.temporaryName, to: Self.name)
      try io.synchronizeDirectory("")
    } catch let error as AppRuntimeError {
      throw error
    } catch {
      throw AppRuntimeError(.stateUnusable, path: io.place, cause: error)
    }
  }

  // MARK: Bytes

  static func bytes(of state: RuntimeState) throws -> Data {
    let encoder = JSONEncoder()
    encoder.outputFormatting = [.sortedKeys]
    encoder.dateEncodingStrategy = .secondsSince1970
    let body = try encoder.encode(state)
    return Data("\(heading) \(body.count) \(hash(of: body))\n".utf8) + body
  }

  private static func state(_ bytes: Data) -> RuntimeState? {
    guard let end = bytes.firstIndex(of: UInt8(ascii: "\n")) else { return nil }
    let body = bytes[bytes.index(after: end)...]
    guard bytes[..<end].elementsEqual("\(heading) \(body.count) \(hash(of: body))".utf8) else { return nil }
    let decoder = JSONDecoder()
    decoder.dateDecodingStrategy = .secondsSince1970
    return try? decoder.decode(RuntimeState.self, from: body)
  }

  private static func hash(of body: Data) -> String {
    Hexadecimal.text(body.withUnsafeBytes { KeyedHash.checksum($0, count: 16) })
  }
}
