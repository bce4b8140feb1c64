package import Foundation
@_exported public import Identifiers

/// What device and relay call a channel.
package typealias ChannelID = Identifier

extension Identifier {
  package var data: Data { Data(bytes) }
}
