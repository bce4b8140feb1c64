/// Checks that the records of arrived messages and of messages that wait for a handler are
/// consistent.
struct DeliveryCheck {
  private let records: CatalogSnapshot
  private(set) var findings: [Finding] = []

  init(_ records: CatalogSnapshot) { self.records = records }

  private mutating func report(_ detail: String) { findings.addInconsistency(detail) }

  mutating func check() throws {
    try checkSenders()
    try checkNumbers()
    try checkRequests()
    try checkQueue()
    try checkParts()
    try checkStaging()
  }

  private mutating func check(
    _ kind: CatalogKey.Kind, _ body: (inout Self, CatalogKey, [UInt8]) throws -> Void
  ) throws {
    var cursor = try records.cursor(from: .all(kind))
    while let (key, value) = try cursor.nextLive(), key.kind == kind { try body(&self, key, value) }
  }

  private mutating func checkSenders() throws {
    try check(.sender) { check, key, value in
      do throws(MalformedBytes) {
        _ = try key.sender()
        _ = try SenderRecord(value)
      } catch { check.report("a sender of deliveries that cannot be: \(error.what)") }
    }
  }

  private mutating func checkNumbers() throws {
    // Deliveries by sender: all, and those of its newest incarnation.
    var (counts, newest): ([FileName: UInt64], [FileName: UInt64]) = ([:], [:])
    var known: (sender: FileName, record: SenderRecord?)?
    try check(.delivery) { check, key, value in
      let (arrived, delivery): (DeliveryKey, NumberedDelivery)
      do throws(MalformedBytes) {
        (arrived, delivery) = (try DeliveryKey(key), try NumberedDelivery(value))
      } catch { return check.report("a delivery that cannot be: \(error.what)") }
      counts[arrived.sender, default: 0] += 1
      if known?.sender != arrived.sender {
        // A malformed one is reported by `checkSenders`.
        known = (
          arrived.sender, try check.records.value(.sender(arrived.sender)).flatMap { try? SenderRecord($0) }
        )
      }
      guard let record = known?.record else {
        return check.report("delivery \(arrived.number) of a sender that is not known")
      }
      let generation = delivery.incarnation.generation
      if generation > record.incarnation.generation {
        check.report(
          "delivery \(arrived.number) is of generation \(generation), after \(record.incarnation.generation)")
      } else if delivery.incarnation == record.incarnation {
        if arrived.number < record.firstRemembered {
          check.report("delivery \(arrived.number) is too far below its floor \(record.floor)")
        }
        newest[arrived.sender, default: 0] += 1
      }
    }
    try check(.sender) { check, key, value in
      guard let sender = try? key.sender(), let record = try? SenderRecord(value) else { return }
      let count = counts[sender] ?? 0
      if record.deliveryCount != count {
        check.report("\(count) deliveries of a sender that counts \(record.deliveryCount)")
      }
      if newest[sender] ?? 0 > record.arrivedCount {
        check.report("more deliveries of a sender than \(record.arrivedCount), which have arrived")
      }
    }
  }

  private mutating func checkRequests() throws {
    try check(.deliveryByRequest) { check, key, value in
      do throws(MalformedBytes) {
        let request = try RequestKey(key)
        let delivery = try Delivery(value)
        guard InboxName.isDirectory(Array(delivery.path.utf8), of: request.sender) else {
          throw MalformedBytes(what: "its directory is not one of its sender's")
        }
      } catch { check.report("a delivery by request that cannot be: \(error.what)") }
    }
  }

  private mutating func checkQueue() throws {
    try check(.queued) { check, key, value in
      guard let arrival = key.arrival else { return check.report("a queued message without a number") }
      if try check.records.value(.inode(arrival)) != nil {
        check.report("queued message \(arrival) has the number of a file")
      }
      do {
        _ = try check.records.queuedMessage(arrival, value)
      } catch let error as ContainerError where error.code == .catalogDamaged {
        check.report("queued message \(arrival) cannot be: \(error.detail ?? "")")
      }
    }
  }

  /// Checks the parts of messages that are not in the queue; the others were checked with their
  /// message.
  private mutating func checkParts() throws {
    var owner: UInt64?
    try check(.queuedMessage) { check, key, _ in
      guard key.bytes.count == 13, let arrival = key.number(at: 1) else {
        return check.report("a part of a queued message that cannot be")
      }
      guard arrival != owner else { return }
      owner = arrival
      if try check.records.value(.queued(arrival)) == nil {
        check.report("parts of a queued message \(arrival) that is not there")
      }
    }
  }

  private mutating func checkStaging() throws {
    try check(.staging) { check, key, _ in
      guard let directory = key.number(at: 1), let inode = try check.records.value(.inode(directory)),
        (try? Inode(inode))?.kind == .directory
      else { return check.report("a staged message without its directory") }
    }
  }
}
