import ContainerStore
import Foundation
import Locks
import SodiumPrimitives

/// What a runtime keeps, in a directory that this process has for itself.
///
/// Each file is replaced as a whole and synced, so that a reader finds the old state or the new one.
final class StateFile: Sendable {
  /// A file of the directory.
  enum Part: String {
    case state, launcher

    fileprivate var heading: String { self == .state ? "dynamics-runtime 1" : "dynamics-launcher 1" }
  }

  private static let lockName = "lock"
  /// The management file takes 4/3 of its bytes, blocks and times some 200 KB.
  static let byteCountMax = 4 << 20

  private let io: any BlockIO
  private let lock: any BlockFile
  private let isHeld = Guarded(true)

  /// Locks the directory, and makes it when it is missing. Throws `alreadyRunning` and `stateUnusable`.
  init(_ io: any BlockIO) throws(AppRuntimeError) {
    self.io = io
    do {
      // Another process may make it at the same moment.
      if !io.isThere {
        do throws(IOFailure) { try io.createDirectory("") } catch {
          guard error.errno == existingFile else { throw error }
        }
      }
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
      let file = try io.openOrCreate(lockName, .readWrite)
      guard try file.tryLock(.writer, exclusive: true) else {
        throw AppRuntimeError(.alreadyRunning, path: io.place)
      }
      // Another process may have removed it in between.
      if try io.leads(lockName, to: file) { return file }
    }
  }

  /// The state of a directory that another process may have; nil when it cannot be read.
  static func peek(_ io: any BlockIO) -> RuntimeState? { try? read(io, .state) }

  private static func read<Value: Decodable>(_ io: any BlockIO, _ part: Part) throws(IOFailure) -> Value? {
    guard let file = try io.openIfReadable(part.rawValue, .read) else { return nil }
    let count = try file.size()
    guard count <= byteCountMax else { return nil }
    return value(Data(try file.read(Int(count), at: 0)), part)
  }

  /// The state; nil when there is none, or it is damaged.
  func read() throws(AppRuntimeError) -> RuntimeState? { try read(.state) }

  /// What is kept; nil when there is nothing, or it is damaged.
  func read<Value: Decodable>(_ part: Part) throws(AppRuntimeError) -> Value? {
    do throws(IOFailure) {
      return try Self.read(io, part)
    } catch {
      throw AppRuntimeError(.stateUnusable, path: io.place, cause: error)
    }
  }

  /// Replaces what is kept. It is durable when this returns.
  func write(_ value: some Encodable, to part: Part = .state) throws(AppRuntimeError) {
    do {
      guard isHeld.withLock({ $0 }), try io.leads(Self.lockName, to: lock) else {
        throw AppRuntimeError(.stateUnusable, path: io.place, detail: "its lock was removed or replaced")
      }
      let bytes = [UInt8](try Self.bytes(of: value, part))
      // What could not be read again would be as good as lost.
      guard bytes.count <= Self.byteCountMax else {
        throw AppRuntimeError(.stateUnusable, path: io.place, detail: "it has \(bytes.count) bytes")
      }
      let temporaryName = part.rawValue + ".new"
      if try io.identity(of: temporaryName) != nil { try io.remove(temporaryName) }
      let file = try io.open(temporaryName, .createNew)
      try file.write(bytes, at: 0)
      try file.synchronize()
      try io.rename(temporaryName, to: part.rawValue)
      try io.synchronizeDirectory("")
    } catch let error as AppRuntimeError {
      throw error
    } catch {
      throw AppRuntimeError(.stateUnusable, path: io.place, cause: error)
    }
  }

  // MARK: Bytes

  static func bytes(of value: some Encodable, _ part: Part = .state) throws -> Data {
    let encoder = JSONEncoder()
    encoder.outputFormatting = [.sortedKeys]
    encoder.dateEncodingStrategy = .secondsSince1970
    let body = try encoder.encode(value)
    return Data("\(part.heading) \(body.count) \(hash(of: body))\n".utf8) + body
  }

  private static func value<Value: Decodable>(_ bytes: Data, _ part: Part) -> Value? {
    guard let end = bytes.firstIndex(of: UInt8(ascii: "\n")) else { return nil }
    let body = bytes[bytes.index(after: end)...]
    guard bytes[..<end].elementsEqual("\(part.heading) \(body.count) \(hash(of: body))".utf8) else {
      return nil
    }
    let decoder = JSONDecoder()
    decoder.dateDecodingStrategy = .secondsSince1970
    return try? decoder.decode(Value.self, from: body)
  }

  private static func hash(of body: Data) -> String {
    Hexadecimal.text(body.withUnsafeBytes { KeyedHash.checksum($0, count: 16) })
  }
}
