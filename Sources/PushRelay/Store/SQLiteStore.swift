package import Foundation
internal import GRDB
internal import Locks
internal import PushWire

/// A store in one SQLite database. Changes that arrive while one transaction is being flushed share the
/// next one.
package final class SQLiteStore: PushStore {
  private let pool: DatabasePool
  private let lock: FileLock
  private let changes = Guarded(Changes())
  /// Why a change could not be stored since the last check that passed. Nil when all were.
  private let lastFailure = Guarded<StoreFailure?>(nil)

  private struct Changes: Sendable {
    var waiting: [Change] = []
    var isRunning = false
  }

  /// A change and what waits for it.
  private struct Change: Sendable {
    /// Returns what tells the caller that the transaction is durable.
    let run: @Sendable (Database) throws -> @Sendable () -> Void
    let fail: @Sendable (StoreFailure) -> Void
  }

  /// Opens the database, or makes it, readable for its owner alone. Throws when another process has it open,
  /// and when it is damaged.
  package init(path: String) throws {
    guard let lock = try FileLock(path: path + ".lock") else {
      throw StoreFailure(description: "the database \(path) is used by another process")
    }
    self.lock = lock
    do {
      try Self.makeFile(path)
      var configuration = Configuration()
      configuration.label = "push store"
      // A copy in the making may hold it for a moment.
      configuration.busyMode = .timeout(1)
      pool = try DatabasePool(path: path, configuration: configuration)
      if let fault = try pool.read({ try String.fetchOne($0, sql: "PRAGMA quick_check(1)") }), fault != "ok" {
        throw StoreFailure(description: fault)
      }
      try pool.writeWithoutTransaction { database in
        // GRDB sets NORMAL in this mode, which loses the last transactions when power fails.
        try database.execute(sql: "PRAGMA synchronous = FULL")
      }
      try Self.migrator.migrate(pool)
    } catch let error as DatabaseError where ![.SQLITE_CORRUPT, .SQLITE_NOTADB].contains(error.resultCode) {
      throw StoreFailure(description: "the database \(path) cannot be opened: \(error)")
    } catch let error as DatabaseError {
      throw Self.damaged(path, "\(error)")
    } catch let fault as StoreFailure {
      throw Self.damaged(path, fault.description)
    }
  }

  private static func damaged(_ path: String, _ fault: String) -> StoreFailure {
    StoreFailure(
      description:
        "the database \(path) is damaged (\(fault)): put a copy of it back, or delete it, which ends all channels"
    )
  }

  /// SQLite makes its other files with the mode of this one.
  private static func makeFile(_ path: String) throws {
    let files = FileManager.default
    let isThere = files.fileExists(atPath: path)
    guard
      isThere || files.createFile(atPath: path, contents: nil, attributes: [.posixPermissions: 0o600])
    else {
      throw StoreFailure(description: "the database \(path) cannot be made")
    }
    if isThere { try files.setAttributes([.posixPermissions: 0o600], ofItemAtPath: path) }
  }

  /// Closes the database, whose one file is whole then. No other call may be under way.
  package func close() throws {
    try Self.describing {
      // A copy in the making keeps the log; then SQLite reads it at the next start.
      _ = try? pool.writeWithoutTransaction { try $0.checkpoint(.truncate) }
      try pool.close()
      lock.release()
    }
  }

  private static var migrator: DatabaseMigrator {
    var migrator = DatabaseMigrator()
    migrator.registerMigration("1") { database in
      try database.execute(
        sql: """
          CREATE TABLE channel (
            number INTEGER PRIMARY KEY AUTOINCREMENT,
            id BLOB NOT NULL UNIQUE,
            device BLOB NOT NULL,
            prefix TEXT NOT NULL UNIQUE,
            tokenHash BLOB NOT NULL UNIQUE,
            secretHash BLOB NOT NULL UNIQUE,
            token BLOB,
            state INTEGER NOT NULL DEFAULT 0,
            last INTEGER NOT NULL DEFAULT 0,
            taken INTEGER NOT NULL DEFAULT 0,
            waitingCount INTEGER NOT NULL DEFAULT 0,
            waitingBytes INTEGER NOT NULL DEFAULT 0,
            pingURL TEXT,
            pingMinutes INTEGER,
            disconnectURL TEXT,
            opened INTEGER NOT NULL,
            ended INTEGER
          ) STRICT;
          CREATE INDEX channelOfDevice ON channel(device) WHERE state < 2;
          CREATE INDEX channelOpened ON channel(opened) WHERE state < 2;
          CREATE INDEX channelEnded ON channel(ended) WHERE state = 2;
          CREATE TABLE event (
            channel INTEGER NOT NULL REFERENCES channel(number),
            sequence INTEGER NOT NULL,
            kind INTEGER NOT NULL,
            code INTEGER,
            body BLOB,
            encoding INTEGER,
            urgency INTEGER,
            topic TEXT,
            accepted INTEGER,
            expires INTEGER,
            UNIQUE (channel, sequence)
          ) STRICT;
          CREATE INDEX eventOfTopic ON event(channel, topic) WHERE topic IS NOT NULL;
          CREATE INDEX eventExpires ON event(expires) WHERE expires IS NOT NULL;
          CREATE TABLE disconnectCall (
            id INTEGER PRIMARY KEY AUTOINCREMENT,
            url TEXT NOT NULL,
            host TEXT NOT NULL,
            token BLOB NOT NULL,
            attempts INTEGER NOT NULL DEFAULT 0,
            created INTEGER NOT NULL,
            due INTEGER NOT NULL
          ) STRICT;
          CREATE INDEX disconnectCallDue ON disconnectCall(due, id);
          CREATE INDEX disconnectCallHost ON disconnectCall(host, id);
          """)
    }
    migrator.registerMigration("2") { database in
      try database.execute(
        sql: """
          DROP INDEX eventExpires;
          CREATE INDEX eventExpires ON event(expires, channel) WHERE expires IS NOT NULL;
          ALTER TABLE disconnectCall ADD COLUMN origin TEXT NOT NULL DEFAULT '';
          CREATE TABLE probe (id INTEGER PRIMARY KEY, filling BLOB NOT NULL) STRICT;
          """)
      for row in try Row.fetchAll(database, sql: "SELECT id, url FROM disconnectCall") {
        let (id, url): (Int64, String) = (row[0], row[1])
        try database.execute(
          sql: "UPDATE disconnectCall SET origin = ? WHERE id = ?",
          arguments: [CallbackURL(url)?.origin ?? "", id])
      }
    }
    return migrator
  }

  // MARK: Transactions

  /// Runs a change in the next transaction. A body that throws undoes the whole transaction, so it
  /// throws for nothing but a failure of the database.
  private func change<R: Sendable>(_ body: @escaping @Sendable (Database) throws -> R) async throws -> R {
    try await withCheckedThrowingContinuation { continuation in
      let change = Change(
        run: { database in
          let result = try body(database)
          return { continuation.resume(returning: result) }
        }, fail: { continuation.resume(throwing: $0) })
      let isFirst = changes.withLock { changes in
        changes.waiting.append(change)
        defer { changes.isRunning = true }
        return !changes.isRunning
      }
      if isFirst { runChanges() }
    }
  }

  private func runChanges() {
    pool.asyncWriteWithoutTransaction { [self] database in
      while true {
        let batch = changes.withLock { changes in
          defer { changes.waiting = [] }
          if changes.waiting.isEmpty { changes.isRunning = false }
          return changes.waiting
        }
        if batch.isEmpty { return }
        commit(batch, database)
      }
    }
  }

  /// Commits changes in one transaction. When one of them fails, each has a transaction of its own: a row
  /// that is damaged concerns nobody else.
  private func commit(_ batch: [Change], _ database: Database) {
    do {
      var completions: [@Sendable () -> Void] = []
      try database.inTransaction(.immediate) {
        for change in batch { completions.append(try change.run(database)) }
        return .commit
      }
      for completion in completions { completion() }
    } catch  where batch.count > 1 {
      for change in batch { commit([change], database) }
    } catch {
      let failure = StoreFailure(description: "\(error)")
      // A row with values that cannot be is no fault of the disk.
      if error is DatabaseError { lastFailure.withLock { $0 = failure } }
      for change in batch { change.fail(failure) }
    }
  }

  package func check() async throws {
    _ = try await read { try Int.fetchOne($0, sql: "SELECT 1 FROM channel LIMIT 1") }
    guard lastFailure.withLock({ $0 }) != nil else { return }
    // The disk may have room again. It has room for more than a few bytes when this is stored.
    try await change {
      try Self.execute($0, "INSERT OR REPLACE INTO probe (id, filling) VALUES (1, randomblob(65536))", [])
    }
    lastFailure.withLock { $0 = nil }
  }

  private func read<R: Sendable>(_ body: @escaping @Sendable (Database) throws -> R) async throws -> R {
    do {
      return try await pool.read(body)
    } catch {
      throw StoreFailure(description: "\(error)")
    }
  }

  private static func describing<R>(_ body: () throws -> R) throws -> R {
    do { return try body() } catch { throw StoreFailure(description: "\(error)") }
  }

  // MARK: Channels

  package func open(_ request: OpenRequest) async throws -> OpenOutcome {
    try await change { database in
      guard let row = try Self.row(database, "id", request.channel.data) else {
        return try Self.make(request, database)
      }
      let channel = try Self.channel(row)
      guard channel.state != .gone, row["device"] == request.device.hash, let token: Data = row["token"]
      else {
        return .failed(.stateLost)
      }
      guard !request.isKnown || request.taken <= channel.last else {
        try Self.end(channel, token: token, with: nil, now: request.now, database)
        return .failed(.stateLost)
      }
      if request.isKnown { try Self.take(channel.number, through: request.taken, now: request.now, database) }
      try Self.execute(
        database, "UPDATE channel SET opened = ? WHERE number = ?", [request.now, channel.number.value])
      guard let opened = try Self.row(database, "id", request.channel.data) else {
        throw StoreFailure(description: "a channel has no row after its update")
      }
      return .opened(try Self.channel(opened), token: token)
    }
  }

  private static func make(_ request: OpenRequest, _ database: Database) throws -> OpenOutcome {
    guard !request.isKnown else { return .failed(.stateLost) }
    let count = try Int.fetchOne(
      database.cachedStatement(sql: "SELECT count(*) FROM channel WHERE device = ? AND state < 2"),
      arguments: [request.device.hash])
    guard (count ?? 0) < request.channelsMax else { return .failed(.tooManyChannels) }
    let token = request.token
    // Another channel has the prefix: a chance of one in 2^48. The app connects again.
    guard try row(database, "prefix", token.prefix) == nil else { return .failed(.relayFailed) }
    try execute(
      database,
      "INSERT INTO channel (id, device, prefix, tokenHash, secretHash, token, opened) VALUES (?, ?, ?, ?, ?, ?, ?)",
      [
        request.channel.data, request.device.hash, token.prefix, token.tokenHash, token.secretHash,
        token.sealed, request.now,
      ])
    guard let row = try row(database, "id", request.channel.data) else {
      throw StoreFailure(description: "a channel has no row after it was made")
    }
    return .opened(try channel(row), token: token.sealed)
  }

  package func channel(tokenHash: Data) async throws -> StoredChannel? {
    try await read { try Self.row($0, "tokenHash", tokenHash).map(Self.channel) }
  }

  package func channel(secretHash: Data) async throws -> StoredChannel? {
    try await read { try Self.row($0, "secretHash", secretHash).map(Self.channel) }
  }

  package func channel(prefix: String) async throws -> StoredChannel? {
    try await read { try Self.row($0, "prefix", prefix).map(Self.channel) }
  }

  package func setCallbacks(
    _ callbacks: GNPRequest.Callbacks, of channel: ChannelNumber
  ) async throws -> Bool {
    try await change { database in
      try Self.execute(
        database,
        "UPDATE channel SET pingURL = ?, pingMinutes = ?, disconnectURL = ? WHERE number = ? AND state = 0",
        [callbacks.ping?.text, callbacks.minimumPingMinutes, callbacks.disconnect?.text, channel.value])
      return database.changesCount == 1
    }
  }

  package func end(_ channel: ChannelNumber, with event: ChannelEnd, now: Int64) async throws -> EventNumber?
  {
    try await change { database in
      guard let row = try Self.row(database, "number", channel.value) else { return nil }
      return try Self.end(try Self.channel(row), token: row["token"], with: event, now: now, database)
    }
  }

  /// Without an event the device learns of the end otherwise, and nothing waits any longer.
  @discardableResult
  private static func end(
    _ channel: StoredChannel, token: Data?, with end: ChannelEnd?, now: Int64, _ database: Database
  ) throws -> EventNumber? {
    guard channel.state == .open else { return nil }
    if let url = channel.callbacks.disconnect, let token {
      try execute(
        database,
        "INSERT INTO disconnectCall (url, host, origin, token, created, due) VALUES (?, ?, ?, ?, ?, ?)",
        [url.text, url.host, url.origin, token, now, now])
    }
    guard let end else {
      try forget(channel.number, now: now, database)
      return nil
    }
    let number = try number(after: channel.last, now: now)
    try execute(
      database,
      """
      UPDATE channel SET state = 1, ended = ?, last = ?, waitingCount = waitingCount + 1,
        pingURL = NULL, pingMinutes = NULL, disconnectURL = NULL WHERE number = ?
      """, [now, Int64(number.sequence), channel.number.value])
    let (kind, code) =
      switch end {
      case .closed: (EventKind.closed, nil as UInt32?)
      case .error(let error): (EventKind.error, error.rawValue)
      }
    try execute(
      database, "INSERT INTO event (channel, sequence, kind, code) VALUES (?, ?, ?, ?)",
      [channel.number.value, Int64(number.sequence), kind.rawValue, code])
    return number
  }

  /// Keeps what answers back ends, and nothing else.
  private static func forget(_ channel: ChannelNumber, now: Int64, _ database: Database) throws {
    try execute(database, "DELETE FROM event WHERE channel = ?", [channel.value])
    try execute(
      database,
      """
      UPDATE channel SET state = 2, ended = ?, token = NULL, waitingCount = 0, waitingBytes = 0,
        pingURL = NULL, pingMinutes = NULL, disconnectURL = NULL WHERE number = ?
      """, [now, channel.value])
  }

  // MARK: Events

  private enum EventKind: Int {
    case message = 0
    case pingFailed = 1
    case closed = 2
    case error = 3
  }

  /// Topic of failed pings: no topic of a back end has this character.
  private static let pingTopic = "!"

  package func append(_ request: AppendRequest) async throws -> AppendOutcome {
    let (column, value): (String, any DatabaseValueConvertible & Sendable) =
      switch request.target {
      case .channel(let number): ("number", number.value)
      case .secret(let hash): ("secretHash", hash)
      }
    return try await change { database in
      // By index: a search for names costs more than the rest.
      let row = try Row.fetchOne(
        database.cachedStatement(
          sql: "SELECT state, last, waitingCount, waitingBytes, number FROM channel WHERE \(column) = ?"),
        arguments: StatementArguments([value]))
      guard let row else { return .unknown }
      guard row[0] == StoredChannel.State.open.rawValue else { return .ended }
      let channel: Int64 = row[4]
      let last: Int64 = row[1]
      guard last >= 0 else { throw StoreFailure(description: "a channel has values that cannot be") }
      let topic: String? =
        switch request.event {
        case .message(let message): message.topic
        case .pingFailed: Self.pingTopic
        }
      let byteCount =
        switch request.event {
        case .message(let message): message.body.count
        case .pingFailed: 0
        }
      let isTransient = request.expires <= request.now
      var waitingCount: Int = row[2]
      var waitingBytes: Int = row[3]
      if waitingCount >= request.waitingCountMax || waitingBytes + byteCount > request.waitingByteCountMax {
        // What has expired takes no room.
        let freed = try Self.expire(channel, now: request.now, database)
        waitingCount -= freed.count
        waitingBytes -= freed.byteCount
      }
      var replaced: [Int64] = []
      if let topic {
        let rows = try Row.fetchAll(
          database.cachedStatement(
            sql:
              "SELECT sequence, length(body) AS byteCount FROM event WHERE channel = ? AND topic = ? AND sequence > ?"
          ),
          arguments: [channel, topic, Int64(clamping: request.sentThrough)])
        for row in rows {
          waitingCount -= 1
          waitingBytes -= row["byteCount"] ?? 0
          replaced.append(row["sequence"])
        }
      }
      guard
        isTransient
          || (waitingCount < request.waitingCountMax
            && waitingBytes + byteCount <= request.waitingByteCountMax)
      else { return .full }
      for sequence in replaced {
        try Self.execute(
          database, "DELETE FROM event WHERE channel = ? AND sequence = ?", [channel, sequence])
      }
      let number = try Self.number(after: UInt64(last), now: request.now)
      try Self.execute(
        database, "UPDATE channel SET last = ?, waitingCount = ?, waitingBytes = ? WHERE number = ?",
        [
          Int64(number.sequence), waitingCount + (isTransient ? 0 : 1),
          waitingBytes + (isTransient ? 0 : byteCount), channel,
        ])
      if !isTransient {
        try Self.insert(request, channel, sequence: Int64(number.sequence), topic: topic, database)
      }
      return .stored(ChannelNumber(value: channel), number)
    }
  }

  /// Deletes the events of a channel that have expired. The index has those of all channels that were not
  /// deleted yet, which are few.
  private static func expire(
    _ channel: Int64, now: Int64, _ database: Database
  ) throws -> (count: Int, byteCount: Int) {
    let row = try Row.fetchOne(
      database.cachedStatement(
        sql: """
          SELECT count(*), total(length(body)) FROM event INDEXED BY eventExpires
          WHERE expires <= ? AND channel = ?
          """), arguments: [now, channel])
    let count: Int = row?[0] ?? 0
    let byteCount = Int(row?[1] ?? 0.0)
    guard count > 0 else { return (0, 0) }
    try execute(
      database, "DELETE FROM event INDEXED BY eventExpires WHERE expires <= ? AND channel = ?",
      [now, channel])
    try execute(
      database,
      "UPDATE channel SET waitingCount = waitingCount - ?, waitingBytes = waitingBytes - ? WHERE number = ?",
      [count, byteCount, channel])
    return (count, byteCount)
  }

  package func expire(now: Int64) async throws {
    let isDue = try await read { database in
      try Int.fetchOne(
        database.cachedStatement(sql: "SELECT 1 FROM event WHERE expires <= ? LIMIT 1"), arguments: [now])
    }
    guard isDue != nil else { return }
    try await change { try Self.expireAll(now: now, $0) }
  }

  private static func expireAll(now: Int64, _ database: Database) throws {
    let expired = try Row.fetchAll(
      database.cachedStatement(
        sql: """
          SELECT channel, count(*), total(length(body)) FROM event WHERE expires <= ? GROUP BY channel
          """), arguments: [now])
    for row in expired {
      let (channel, count, byteCount): (Int64, Int, Double) = (row[0], row[1], row[2])
      try execute(
        database,
        "UPDATE channel SET waitingCount = waitingCount - ?, waitingBytes = waitingBytes - ? WHERE number = ?",
        [count, Int(byteCount), channel])
    }
    try execute(database, "DELETE FROM event WHERE expires <= ?", [now])
  }

  /// Throws when the column cannot hold the number: the clock is wrong by hundreds of thousands of years.
  private static func number(after last: UInt64, now: Int64) throws -> EventNumber {
    let number = EventNumber(after: last, now: now)
    guard number.sequence < UInt64(Int64.max) else {
      throw StoreFailure(description: "there is no number for another event; the clock says \(now) ms")
    }
    return number
  }

  private static func insert(
    _ request: AppendRequest, _ channel: Int64, sequence: Int64, topic: String?, _ database: Database
  ) throws {
    switch request.event {
    case .message(let message):
      try execute(
        database,
        """
        INSERT INTO event (channel, sequence, kind, body, encoding, urgency, topic, accepted, expires)
        VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)
        """,
        [
          channel, sequence, EventKind.message.rawValue, message.body,
          encodings.firstIndex(of: message.encoding), urgencies.firstIndex(of: message.urgency), topic,
          Int64(clamping: message.accepted), request.expires,
        ])
    case .pingFailed(let code):
      try execute(
        database,
        "INSERT INTO event (channel, sequence, kind, code, topic, expires) VALUES (?, ?, ?, ?, ?, ?)",
        [channel, sequence, EventKind.pingFailed.rawValue, code, topic, request.expires])
    }
  }

  package func take(_ takes: [(channel: ChannelNumber, through: UInt64)], now: Int64) async throws {
    try await change { database in
      for (channel, through) in takes { try Self.take(channel, through: through, now: now, database) }
    }
  }

  private static func take(
    _ channel: ChannelNumber, through: UInt64, now: Int64, _ database: Database
  ) throws {
    let row = try Row.fetchOne(
      database.cachedStatement(sql: "SELECT state, last, taken FROM channel WHERE number = ?"),
      arguments: [channel.value])
    guard let row, let state = StoredChannel.State(rawValue: row[0]), state != .gone else { return }
    let (last, taken): (Int64, Int64) = (row[1], row[2])
    let through = min(Int64(clamping: through), last)
    guard through > taken else { return }
    if state == .ended, through == last { return try forget(channel, now: now, database) }
    let rows = try Row.fetchOne(
      database.cachedStatement(
        sql:
          "SELECT count(*) AS count, total(length(body)) AS byteCount FROM event WHERE channel = ? AND sequence <= ?"
      ),
      arguments: [channel.value, through])
    let count: Int = rows?[0] ?? 0
    let byteCount = Int(rows?[1] ?? 0.0)
    try execute(
      database, "DELETE FROM event WHERE channel = ? AND sequence <= ?", [channel.value, through])
    try execute(
      database,
      """
      UPDATE channel SET taken = ?, waitingCount = waitingCount - ?, waitingBytes = waitingBytes - ?
      WHERE number = ?
      """, [through, count, byteCount, channel.value])
  }

  package func events(
    of channel: ChannelNumber, after sequence: UInt64, count: Int, byteCount: Int, now: Int64
  ) async throws -> [StoredEvent] {
    try await read { database in
      let rows = try Row.fetchCursor(
        database.cachedStatement(
          sql: """
            SELECT * FROM event WHERE channel = ? AND sequence > ? AND (expires IS NULL OR expires > ?)
            ORDER BY sequence LIMIT ?
            """), arguments: [channel.value, Int64(clamping: sequence), now, count])
      var events: [StoredEvent] = []
      var room = byteCount
      while let row = try rows.next() {
        let event = try Self.event(row)
        if case .message(let message) = event.event {
          room -= message.body.count
          if room < 0, !events.isEmpty { break }
        }
        events.append(event)
      }
      return events
    }
  }

  package func touch(_ channels: [ChannelNumber], now: Int64) async throws {
    try await change { database in
      for channel in channels {
        try Self.execute(
          database, "UPDATE channel SET opened = ? WHERE number = ?", [now, channel.value])
      }
    }
  }

  package func sweep(
    now: Int64, abandonedBefore: Int64, endedBefore: Int64, callsOfHost: Int
  ) async throws {
    try await change { database in
      try Self.expireAll(now: now, database)
      let abandoned = try Row.fetchAll(
        database.cachedStatement(sql: "SELECT \(Self.columns) FROM channel WHERE opened < ? AND state < 2"),
        arguments: [abandonedBefore])
      for row in abandoned {
        let channel = try Self.channel(row)
        if channel.state == .open {
          // Its device may still come back, and learns it then.
          try Self.execute(database, "DELETE FROM event WHERE channel = ?", [channel.number.value])
          try Self.execute(
            database, "UPDATE channel SET waitingCount = 0, waitingBytes = 0, opened = ? WHERE number = ?",
            [now, channel.number.value])
          try Self.end(channel, token: row["token"], with: .error(.abandoned), now: now, database)
        } else {
          try Self.forget(channel.number, now: now, database)
        }
      }
      try Self.execute(database, "DELETE FROM channel WHERE state = 2 AND ended < ?", [endedBefore])
      let crowded = try String.fetchAll(
        database.cachedStatement(sql: "SELECT host FROM disconnectCall GROUP BY host HAVING count(*) > ?"),
        arguments: [callsOfHost])
      for host in crowded {
        try Self.execute(
          database,
          """
          DELETE FROM disconnectCall WHERE host = ? AND id <=
            (SELECT id FROM disconnectCall WHERE host = ? ORDER BY id DESC LIMIT 1 OFFSET ?)
          """, [host, host, callsOfHost])
      }
    }
  }

  // MARK: Calls

  package func dueCalls(
    now: Int64, count: Int, excludingHosts hosts: Set<String>, origins: Set<String>
  ) async throws -> [DisconnectCall] {
    try await read { database in
      let rows = try Row.fetchCursor(
        database.cachedStatement(
          sql: """
            SELECT id, url, host, origin, token, attempts, created FROM disconnectCall
            WHERE due <= ? ORDER BY due, id
            """), arguments: [now])
      var hosts = hosts
      var calls: [DisconnectCall] = []
      while calls.count < count, let row = try rows.next() {
        let (host, origin): (String, String) = (row[2], row[3])
        guard !origins.contains(origin), hosts.insert(host).inserted else { continue }
        calls.append(
          DisconnectCall(
            id: row[0], url: row[1], host: host, origin: origin, sealedToken: row[4], attempts: row[5],
            created: row[6]))
      }
      return calls
    }
  }

  package func finish(_ call: DisconnectCall) async throws {
    try await change { try Self.execute($0, "DELETE FROM disconnectCall WHERE id = ?", [call.id]) }
  }

  package func postpone(_ call: DisconnectCall, until due: Int64) async throws {
    try await change {
      try Self.execute(
        $0, "UPDATE disconnectCall SET attempts = ?, due = ? WHERE id = ?", [call.attempts + 1, due, call.id])
    }
  }

  package func anyToken() async throws -> Data? {
    try await read { try Data.fetchOne($0, sql: "SELECT token FROM channel WHERE token IS NOT NULL LIMIT 1") }
  }

  package func totals() async throws -> StoreTotals {
    try await read { database in
      let row = try Row.fetchOne(
        database.cachedStatement(
          sql: """
            SELECT count(*) AS channels, total(state = 0) AS open, total(waitingCount) AS events,
              total(waitingBytes) AS bytes, (SELECT count(*) FROM disconnectCall) AS calls
            FROM channel
            """))
      guard let row else { throw StoreFailure(description: "a sum has no row") }
      let (open, events, bytes): (Double, Double, Double) = (row["open"], row["events"], row["bytes"])
      return StoreTotals(
        openChannels: Int(open), channels: row["channels"], waitingEvents: Int(events),
        waitingBytes: Int(bytes), waitingCalls: row["calls"])
    }
  }

  // MARK: Rows

  private static let encodings: [PushMessage.Encoding] = [.text, .aes128gcm]
  private static let urgencies: [PushMessage.Urgency] = [.normal, .veryLow, .low, .high]

  private static func execute(
    _ database: Database, _ sql: String, _ arguments: [(any DatabaseValueConvertible)?]
  ) throws {
    try database.cachedStatement(sql: sql).execute(arguments: StatementArguments(arguments))
  }

  /// In the order in which ``channel(_:)`` reads them, by index.
  private static let columns =
    "number, id, prefix, state, last, taken, pingURL, disconnectURL, pingMinutes, token, device"

  private static func row(
    _ database: Database, _ column: String, _ value: any DatabaseValueConvertible
  ) throws -> Row? {
    try Row.fetchOne(
      database.cachedStatement(sql: "SELECT \(columns) FROM channel WHERE \(column) = ?"),
      arguments: StatementArguments([value]))
  }

  /// Throws for values that no version has written.
  private static func channel(_ row: Row) throws -> StoredChannel {
    let bytes: Data = row[1]
    let (number, stateValue, last, taken): (Int64, Int, Int64, Int64) = (row[0], row[3], row[4], row[5])
    guard let id = ChannelID(exactly: bytes), let state = StoredChannel.State(rawValue: stateValue),
      (0..<Int64.max).contains(last), (0...last).contains(taken)
    else { throw StoreFailure(description: "channel \(number) has values that cannot be") }
    let (ping, disconnect): (String?, String?) = (row[6], row[7])
    return StoredChannel(
      number: ChannelNumber(value: number), id: id, prefix: row[2], state: state, last: UInt64(last),
      taken: UInt64(taken),
      callbacks: GNPRequest.Callbacks(
        ping: ping.flatMap(CallbackURL.init), disconnect: disconnect.flatMap(CallbackURL.init),
        minimumPingMinutes: row[8]))
  }

  private static func event(_ row: Row) throws -> StoredEvent {
    let (sequence, kindValue): (Int64, Int) = (row["sequence"], row["kind"])
    let broken = StoreFailure(description: "event \(sequence) has values that cannot be")
    guard let kind = EventKind(rawValue: kindValue), sequence > 0 else { throw broken }
    let event: ChannelEvent
    switch kind {
    case .message:
      let (encoding, urgency, accepted): (Int?, Int?, Int64?) = (
        row["encoding"], row["urgency"], row["accepted"]
      )
      guard let encoding, encodings.indices.contains(encoding), let urgency,
        urgencies.indices.contains(urgency),
        let accepted, accepted >= 0
      else { throw broken }
      event = .message(
        PushMessage(
          body: row["body"] ?? Data(), encoding: encodings[encoding], urgency: urgencies[urgency],
          topic: row["topic"], accepted: UInt64(accepted)))
    case .pingFailed, .error:
      let stored: Int64? = row["code"]
      guard let code = stored.flatMap(UInt32.init(exactly:)),
        (kind == .error ? ChannelEvent.errorCodes : ChannelEvent.pingCodes).contains(code)
      else { throw broken }
      event = kind == .error ? .error(code) : .pingFailed(code)
    case .closed: event = .closed
    }
    return StoredEvent(sequence: UInt64(sequence), event: event)
  }
}
