package import Foundation

/// What both sides of a sealed socket know before its handshake, and so bind to it
/// (CHANNEL-PROTOCOL.md, "The sealed socket").
package enum Prologue {
  package static let broker = Array("OpenDynamics broker 1".utf8)

  /// Of a channel that an introduction made. An app is its id and its activation user.
  package static func channel(
    ticket: Data, dialler: (appID: String, user: String), acceptor: (appID: String, user: String)
  ) -> [UInt8] {
    [dialler.appID, acceptor.appID, dialler.user, acceptor.user].reduce(
      Array("OpenDynamics channel 1".utf8) + ticket
    ) { $0 + lengthAndBytes(of: $1) }
  }

  private static func lengthAndBytes(of text: String) -> [UInt8] {
    let bytes = Array(text.utf8)
    return withUnsafeBytes(of: UInt32(bytes.count).littleEndian) { Array($0) } + bytes
  }
}
