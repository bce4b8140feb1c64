import Foundation
import SodiumPrimitives

/// Where a stream's secretstream stands, for the thread that seals or opens it; wiped when it goes.
final class BulkStreamState {
  var value: SecretStreamState

  private init(_ value: consuming SecretStreamState) { self.value = value }

  deinit { value.wipe() }

  static func beginning(key: Data, header: UnsafeRawBufferPointer) -> BulkStreamState {
    key.withUnsafeBytes { BulkStreamState(SecretStreamState(key: $0, header: header)) }
  }
}
