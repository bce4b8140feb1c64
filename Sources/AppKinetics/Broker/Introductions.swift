import Foundation
import ServiceValues
import ServiceWire

/// Introductions and the sockets that belong to them, which come on two ways: whichever is first waits here for the other.
final class Introductions {
  private struct Introduced {
    let introduction: WireIntroduction
    let until: UInt64
  }

  private struct Sockets {
    let control: Int32
    let bulk: Int32
    let until: UInt64

    func close() { BrokerSession.closeAll([control, bulk]) }
  }

  private unowned let core: Core
  private var introduced: [Data: Introduced] = [:]
  private var handed: [Data: Sockets] = [:]
  /// They cost no descriptors: as many as come with one read of the broker's messages.
  private static let introducedCountMax = 1024
  private static let handedCountMax = 16
  /// Lets the thread that reads sockets go on.
  private var readOn: (@Sendable () -> Void)?
  /// Milliseconds.
  private static let time: UInt64 = 10_000

  init(_ core: Core) { self.core = core }

  /// Introductions that this app asked for, and whose sockets did not come yet.
  var dialledCount: Int { introduced.values.count { $0.introduction.role == .dialler } }

  func take(_ introduction: WireIntroduction) {
    let ticket = introduction.ticket
    if introduction.role == .dialler, let application = try? ApplicationID(introduction.appID) {
      core.peers[application]?.wasIntroduced(ticket)
    }
    if let sockets = handed.removeValue(forKey: ticket) {
      open(introduction, sockets)
      return roomWasMade()
    }
    // Other apps decide how many come at once, so one too many is no fault of the broker: the oldest goes.
    if introduced.count >= Self.introducedCountMax,
      let (oldest, _) = introduced.min(by: { $0.value.until < $1.value.until })
    {
      giveUp(oldest)
    }
    introduced[ticket] = Introduced(introduction: introduction, until: core.runtime.now + Self.time)
  }

  /// Takes over the sockets. False when there are such with this ticket already.
  func take(_ ticket: Data, _ control: Int32, _ bulk: Int32) -> Bool {
    let sockets = Sockets(control: control, bulk: bulk, until: core.runtime.now + Self.time)
    if let first = introduced.removeValue(forKey: ticket) {
      open(first.introduction, sockets)
      return true
    }
    guard handed[ticket] == nil else {
      sockets.close()
      return false
    }
    handed[ticket] = sockets
    return true
  }

  /// Calls back when there is room for other sockets: more are not read before that.
  func whenThereIsRoom(_ readOn: @escaping @Sendable () -> Void) {
    self.readOn = readOn
    roomWasMade()
  }

  private func roomWasMade() {
    guard handed.count < Self.handedCountMax, let readOn else { return }
    self.readOn = nil
    readOn()
  }

  private func open(_ introduction: WireIntroduction, _ sockets: Sockets) {
    guard let application = try? ApplicationID(introduction.appID), core.life == .running else {
      return sockets.close()
    }
    core.peer(application).open(introduction, sockets.control, sockets.bulk)
  }

  /// Introductions to these apps end, when their sockets have not come yet.
  func drop(_ error: ServicesError, where isMeant: (ApplicationID) -> Bool) {
    for (ticket, waiting) in introduced {
      guard let application = try? ApplicationID(waiting.introduction.appID), isMeant(application) else {
        continue
      }
      giveUp(ticket, error)
    }
  }

  /// The sockets of an introduction did not come; who waits for it hears so.
  private func giveUp(
    _ ticket: Data,
    _ error: ServicesError = ServicesError(.timedOut, detail: "the sockets of an introduction did not come")
  ) {
    guard let introduction = introduced.removeValue(forKey: ticket)?.introduction,
      introduction.role == .dialler, let application = try? ApplicationID(introduction.appID)
    else { return }
    core.peers[application]?.cannotReach(error)
  }

  // MARK: Deadlines

  var nextDeadline: UInt64? { (introduced.values.map(\.until) + handed.values.map(\.until)).min() }

  func tick(_ now: UInt64) {
    for (ticket, waiting) in introduced where now >= waiting.until { giveUp(ticket) }
    for (ticket, sockets) in handed where now >= sockets.until {
      handed[ticket] = nil
      sockets.close()
    }
    roomWasMade()
  }

  /// The connection to the broker is gone.
  func end() {
    for ticket in introduced.keys { giveUp(ticket) }
    for sockets in handed.values { sockets.close() }
    handed = [:]
    roomWasMade()
  }
}
