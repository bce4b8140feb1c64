import AppKinetics
import Foundation

/// A message of the outbox as `outbox` prints it.
struct OutboxDescription: Encodable {
  var requestID: String
  var isReply: Bool
  var app: String
  var date: String
  var fileCount: UInt64
  var byteCount: UInt64
  var state: String?

  init(_ message: OutboxMessage) { self.init(message, state: nil) }

  init(_ message: OutboxMessage, state: String?) {
    requestID = message.request.description
    isReply = message.isReply
    app = message.receiver.text
    // To the microsecond that such a date holds.
    date = Quantity.timestamp(Int64((message.date.timeIntervalSince1970 * 1e6).rounded()) * 1000)
    fileCount = message.fileCount
    byteCount = message.byteCount
    self.state = state
  }

  /// A line for a message that its receiver refused; part of the error's text is the receiver's.
  static func refusal(of request: some CustomStringConvertible, _ error: ServicesError) -> String {
    "\(request): \(PrintableText.of("\(error)"))\n"
  }

  var text: String {
    let parts = [
      requestID, isReply ? "reply" : "request", PrintableText.of(app),
      Quantity.count(Int(clamping: fileCount), "file"), Quantity.bytes(byteCount), state,
    ]
    return parts.compactMap(\.self).joined(separator: "  ") + "\n"
  }
}
