package import Foundation

/// What a ``BrokerState`` wants done, in this order.
package enum BrokerOutput: Sendable, Equatable {
  case send(WireBrokerMessage, to: ConnectionNumber)
  /// Say goodbye and close. The state has forgotten the connection.
  case close(ConnectionNumber, ProtocolFault, detail: String)
  /// There is more to send to the connection: ``BrokerState/continue(_:)`` follows once, when the connection has room.
  case more(ConnectionNumber)
  /// Make two socket pairs, and send each side its message, and one end of each with the ticket; then the answer.
  case introduce(BrokerIntroduction)
  /// ``BrokerState/startFailed(_:now:)`` follows when it cannot be started.
  case start(appID: String, program: String, arguments: [String])
  /// The app has not enrolled in time: end what was started for it, if that still runs.
  case endProgram(appID: String)
  /// ``BrokerState/compositorAnswered(_:isDone:now:)`` follows; until then no other change is asked for, unless *compositor time* passes.
  case askCompositor(appID: String?, FrontChange)
  /// *Compositor time* has passed: end the asking, which may change nothing on the screen any more.
  case stopAskingCompositor
  /// What ``BrokerState/records`` has of it is to be kept, before anything that follows is done.
  case save(BrokerRecords.Part)
  /// What follows says that this is kept: it may be from before, when it could not be written.
  case require(BrokerRecords.Part)
}

/// Two apps that are brought together.
package struct BrokerIntroduction: Sendable, Equatable {
  package let ticket: Data
  package let dialler: ConnectionNumber
  package let acceptor: ConnectionNumber
  package let toDialler: WireBrokerMessage
  package let toAcceptor: WireBrokerMessage
  /// To the dialler, last.
  package let answer: WireBrokerMessage
  /// To the dialler in the place of everything, when the acceptor's descriptor lane has no room: that many may come from others at once is no
  /// fault of the acceptor's.
  package let refusal: WireBrokerMessage
  /// Likewise, when it is the dialler's own descriptor lane that has no room.
  package let refusalOfDialler: WireBrokerMessage
  /// Likewise, when the broker has no descriptors left for two socket pairs.
  package let refusalWithoutDescriptors: WireBrokerMessage

  struct Side {
    let appID: String
    let connection: ConnectionNumber
    let record: BrokerRecords.App?
    /// The number by which the other app knows its sandbox.
    let origin: UInt64
  }

  /// `question` is the dialler's.
  init(ticket: Data, question: UInt64, dialler: Side, acceptor: Side) {
    func message(_ role: WireRole, about peer: Side) -> WireBrokerMessage {
      .with {
        $0.introduction = .with {
          $0.ticket = ticket
          $0.role = role
          $0.appID = peer.appID
          $0.activationUser = peer.record?.activationUser ?? ""
          $0.publicKey = peer.record?.publicKey ?? Data()
          $0.number = role == .dialler ? question : 0
          $0.origin = peer.origin
        }
      }
    }
    func refused(_ limit: String) -> WireBrokerMessage { .failure(question, .limitExceeded, limit) }
    self.ticket = ticket
    self.dialler = dialler.connection
    self.acceptor = acceptor.connection
    toDialler = message(.dialler, about: acceptor)
    toAcceptor = message(.acceptor, about: dialler)
    answer = .answer(question) { $0.introduced.ticket = ticket }
    refusal = refused("introductions that wait for the other app")
    refusalOfDialler = refused("introductions that this app has not taken")
    refusalWithoutDescriptors = refused("descriptors of the broker")
  }
}

package struct ConnectionNumber: Hashable, Sendable, Comparable {
  package let number: UInt64

  package init(_ number: UInt64) { self.number = number }

  package static func < (left: Self, right: Self) -> Bool { left.number < right.number }
}

package struct FrontChange: Hashable, Sendable {
  package let number: UInt64
}
