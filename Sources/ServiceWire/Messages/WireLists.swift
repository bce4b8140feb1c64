import Foundation

/// Where a frame may have lists: its messages have fields that repeat, or hold messages that have.
///
/// An element of a list may take two bytes of a frame, and a hundred in memory once it is read. So the elements are counted in the frame,
/// before anything is read: what a peer makes this side take stays bounded by what it was allowed to list.
package enum WireLists {
  case administer, answer, app, apps, array, brokerMessage, channelMessage, enrolled, inquiry, install
  case manifestPage, member, object, offer, policy, program, provider, providers, providersChanged
  case question, register, reply, replyError, request, rules, value

  /// What such a field has.
  private enum Part {
    case message(WireLists)
    case list(of: WireLists?)
  }

  private func part(_ field: UInt64) -> Part? {
    switch (self, field) {
    case (.brokerMessage, 12): .message(.question)
    case (.brokerMessage, 20): .message(.enrolled)
    case (.brokerMessage, 21): .message(.answer)
    case (.brokerMessage, 24): .message(.providersChanged)
    case (.brokerMessage, 26): .message(.policy)
    case (.enrolled, 2): .message(.policy)
    case (.enrolled, 3): .list(of: nil)
    case (.question, 10): .message(.register)
    case (.question, 18): .message(.administer)
    case (.answer, 11): .message(.providers)
    case (.answer, 12): .message(.apps)
    case (.answer, 13): .message(.rules)
    case (.register, 5), (.register, 7), (.register, 8): .list(of: nil)
    case (.administer, 7): .message(.install)
    case (.install, 2): .message(.program)
    case (.program, 2): .list(of: nil)
    case (.provider, 6), (.provider, 9): .list(of: nil)
    case (.providers, 1): .list(of: .provider)
    case (.providersChanged, 2): .list(of: .provider)
    case (.providersChanged, 3): .list(of: nil)
    case (.rules, 1): .list(of: nil)
    case (.policy, 1), (.policy, 2): .list(of: nil)
    case (.app, 1): .message(.provider)
    case (.app, 5): .message(.program)
    case (.apps, 1), (.apps, 4): .list(of: .app)

    case (.channelMessage, 10): .message(.request)
    case (.channelMessage, 13): .message(.reply)
    case (.channelMessage, 18): .message(.inquiry)
    case (.channelMessage, 30): .message(.offer)
    case (.channelMessage, 34): .message(.manifestPage)
    case (.request, 5): .message(.value)
    case (.reply, 2): .message(.value)
    case (.reply, 3): .message(.replyError)
    case (.replyError, 3): .message(.value)
    case (.inquiry, 2): .list(of: nil)
    case (.offer, 10): .message(.request)
    case (.offer, 11): .message(.reply)
    case (.offer, 14): .list(of: nil)
    case (.manifestPage, 3): .list(of: nil)

    case (.value, 7): .message(.array)
    case (.value, 8): .message(.object)
    case (.array, 1): .list(of: .value)
    case (.object, 1): .list(of: .member)
    case (.member, 2): .message(.value)
    default: nil
    }
  }

  /// Throws `limitExceeded` when all lists of a frame have more elements than that together, `malformed` for what is no message, or one
  /// that is nested deeper than any.
  func check(_ frame: Data, elementCountMax: Int) throws(ProtocolFault) {
    var elementsLeft = elementCountMax
    try frame.withFrameBytes { bytes throws(ProtocolFault) in try count(bytes, &elementsLeft, depth: 0) }
  }

  /// Values nest 32 deep, an object's member is three messages deep.
  static let depthMax = 128

  private func count(
    _ message: UnsafeRawBufferPointer, _ elementsLeft: inout Int, depth: Int
  ) throws(ProtocolFault) {
    guard depth < Self.depthMax else { throw .malformed }
    var fields = WireFields(message)
    while let field = try fields.next() {
      guard let contents = field.contents, let part = part(field.number) else { continue }
      let lists: WireLists?
      switch part {
      case .message(let message): lists = message
      case .list(let element):
        guard elementsLeft > 0 else { throw .limitExceeded }
        elementsLeft -= 1
        lists = element
      }
      try lists?.count(contents, &elementsLeft, depth: depth + 1)
    }
  }
}
