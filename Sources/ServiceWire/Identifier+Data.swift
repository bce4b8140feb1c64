package import Foundation
package import SodiumPrimitives

extension Identifier {
  /// The bytes as a field of a message has them.
  package var data: Data { Data(bytes) }
}
