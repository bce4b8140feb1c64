internal import Crypto
internal import Foundation
internal import GRDB
internal import PushChannels
internal import PushWire

/// The state of a device: its secret, its channels, and their events that were not shown. One SQLite
/// database, whose rows are sealed with a key of the app.
final class DeviceStorage: Sendable {
  enum Change: Sendable {
    case save(ChannelBook.Record)
    case saveEvent(ChannelID, sequence: UInt64, ChannelEvent)
    case removeEvent(ChannelID, sequence: UInt64)
    case remove(ChannelID)
  }

  struct State: Sendable {
    var secret: Data
    var records: [ChannelBook.Record]
    var events: [ChannelID: [(sequence: UInt64, event: ChannelEvent)]]
  }

  let queue: DatabaseQueue
  private let key: SymmetricKey

  /// Opens the state in a directory, or makes both.
  init(directory: URL, key: Data) throws(PushError) {
    guard key.count == 32 else { throw .invalidKey }
    self.key = SymmetricKey(data: key)
    do {
      try FileManager.default.createDirectory(
        at: directory, withIntermediateDirectories: true, attributes: [.posixPermissions: 0o700])
      var configuration = Configuration()
      configuration.label = "push device"
      configuration.busyMode = .timeout(1)
      queue = try DatabaseQueue(
        path: directory.appendingPathComponent("push.sqlite").path, configuration: configuration)
      try queue.writeWithoutTransaction { database in
        try database.execute(sql: "PRAGMA journal_mode = WAL")
        // One process has the state: a second one would show the same events.
        try database.execute(sql: "PRAGMA locking_mode = EXCLUSIVE")
        try database.execute(
          sql: """
            CREATE TABLE IF NOT EXISTS device (secret BLOB NOT NULL) STRICT;
            CREATE TABLE IF NOT EXISTS channel (id BLOB PRIMARY KEY, record BLOB NOT NULL) STRICT;
            CREATE TABLE IF NOT EXISTS event (
              channel BLOB NOT NULL, sequence INTEGER NOT NULL, event BLOB NOT NULL,
              PRIMARY KEY (channel, sequence)
            ) STRICT;
            """)
      }
    } catch let error as DatabaseError where error.resultCode == .SQLITE_BUSY {
      throw .stateInUse(directory.path)
    } catch {
      throw .stateUnreadable("\(error)")
    }
  }

  func close() {
    try? queue.close()
  }

  /// What is stored. Draws the secret of the device the first time.
  func load() throws(PushError) -> State {
    do {
      return try queue.write { database in
        let secret: Data
        if let sealed = try Data.fetchOne(database, sql: "SELECT secret FROM device") {
          secret = try open(sealed, "secret")
        } else {
          secret = SymmetricKey(size: .bits256).withUnsafeBytes { Data($0) }
          try database.execute(
            sql: "INSERT INTO device (secret) VALUES (?)", arguments: [try seal(secret, "secret")])
        }
        var records: [ChannelBook.Record] = []
        for row in try Row.fetchAll(database, sql: "SELECT * FROM channel") {
          let id = try id(row["id"])
          let plain = try open(row["record"], "channel \(id)")
          records.append(try JSONDecoder().decode(StoredRecord.self, from: plain).record(id))
        }
        var events: [ChannelID: [(sequence: UInt64, event: ChannelEvent)]] = [:]
        for row in try Row.fetchAll(database, sql: "SELECT * FROM event ORDER BY channel, sequence") {
          let id = try id(row["channel"])
          let number: Int64 = row["sequence"]
          let plain = try open(row["event"], "event \(id) \(number)")
          guard case .event(_, let sequence, let event) = try RelayFrame(bytes: plain) else {
            throw Damaged()
          }
          events[id, default: []].append((sequence, event))
        }
        return State(secret: secret, records: records, events: events)
      }
    } catch {
      throw .stateUnreadable("\(error)")
    }
  }

  /// All changes or none. When `isDurable`, they survive a power failure once this returns; else a killed
  /// process alone.
  func perform(_ changes: [Change], isDurable: Bool) throws {
    try queue.writeWithoutTransaction { database in
      try database.execute(sql: "PRAGMA synchronous = \(isDurable ? "FULL" : "NORMAL")")
      try database.inTransaction {
        for change in changes { try perform(change, database) }
        return .commit
      }
    }
  }

  private func perform(_ change: Change, _ database: Database) throws {
    switch change {
    case .save(let record):
      let sealed = try seal(try JSONEncoder().encode(StoredRecord(record)), "channel \(record.id)")
      try database.cachedStatement(sql: "INSERT OR REPLACE INTO channel (id, record) VALUES (?, ?)")
        .execute(arguments: [record.id.data, sealed])
    case .saveEvent(let id, let sequence, let event):
      let number = Int64(clamping: sequence)
      let plain = RelayFrame.event(id, sequence: sequence, event).bytes
      try database.cachedStatement(
        sql: "INSERT OR REPLACE INTO event (channel, sequence, event) VALUES (?, ?, ?)"
      ).execute(arguments: [id.data, number, try seal(plain, "event \(id) \(number)")])
    case .removeEvent(let id, let sequence):
      try database.cachedStatement(sql: "DELETE FROM event WHERE channel = ? AND sequence = ?")
        .execute(arguments: [id.data, Int64(clamping: sequence)])
    case .remove(let id):
      try database.cachedStatement(sql: "DELETE FROM event WHERE channel = ?").execute(arguments: [id.data])
      try database.cachedStatement(sql: "DELETE FROM channel WHERE id = ?").execute(arguments: [id.data])
    }
  }

  // MARK: Sealing

  private struct Damaged: Error, CustomStringConvertible {
    var description: String { "the state of push is damaged, or the key is another one" }
  }

  /// `place` binds the bytes to their row.
  private func seal(_ plain: Data, _ place: String) throws -> Data {
    guard let sealed = try AES.GCM.seal(plain, using: key, authenticating: Data(place.utf8)).combined else {
      throw Damaged()
    }
    return sealed
  }

  private func open(_ sealed: Data, _ place: String) throws -> Data {
    do {
      return try AES.GCM.open(
        AES.GCM.SealedBox(combined: sealed), using: key, authenticating: Data(place.utf8))
    } catch {
      throw Damaged()
    }
  }

  private func id(_ bytes: Data) throws -> ChannelID {
    guard let id = ChannelID(exactly: bytes) else { throw Damaged() }
    return id
  }
}

/// A record as it is encoded; its id is that of the row.
private struct StoredRecord: Codable {
  var identifier: String
  var token: String?
  var host: String?
  var isClosing: Bool
  var isEnded: Bool
  var stored: UInt64
  var keys: Data?

  init(_ record: ChannelBook.Record) {
    (identifier, token, host) = (record.identifier, record.token, record.host)
    (isClosing, isEnded) = (record.isClosing, record.isEnded)
    (stored, keys) = (record.stored, record.keys)
  }

  func record(_ id: ChannelID) -> ChannelBook.Record {
    var record = ChannelBook.Record(id: id, identifier: identifier, keys: keys)
    (record.token, record.host, record.stored) = (token, host, stored)
    (record.isClosing, record.isEnded) = (isClosing, isEnded)
    return record
  }
}
