/// Checks that the records of arrived messages and of messages that wait for a handler are
/// consistent.
struct DeliveryCheck {
  private let records: CatalogSnapshot
  private(set) var findings: [Finding] = []

  init(_ records: CatalogSnapshot) { self.records = records }

  private mutating func report(_ detail: String) { findings.addInconsistency(detail) }

  mutating func check() throws {
    try checkFloors()
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

  private mutating func checkFloors() throws {
    try check(.deliveryFloor) { check, key, value in
      do throws(MalformedBytes) {
        _ = try ArrivalKey(deliveryFloor: key)
        _ = try DeliveryFloor(value)
      } catch { check.report("a delivery floor that cannot be: \(error.what)") }
    }
  }

  private mutating func checkNumbers() throws {
    var known: (key: CatalogKey, floor: UInt64)?
    try check(.delivery) { check, key, value in
      let delivery: ArrivalKey
      do throws(MalformedBytes) {
        delivery = try ArrivalKey(delivery: key)
        _ = try NumberedDelivery(value)
      } catch { return check.report("a delivery that cannot be: \(error.what)") }
      let floorKey = CatalogKey.deliveryFloor(delivery)
      if known?.key != floorKey {
        // A malformed low-water mark is reported by `checkFloors`.
        let floor = try check.records.value(floorKey).flatMap { try? DeliveryFloor($0) }
        known = (floorKey, floor?.number ?? 0)
      }
      if delivery.number < known!.floor {
        check.report("delivery \(delivery.number) is below its floor \(known!.floor)")
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
