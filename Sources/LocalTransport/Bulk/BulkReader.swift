import ServiceWire
import SodiumPrimitives
import UnixSockets

/// The bytes of a bulk lane as its receiving thread reads them, and the memory that the thread
/// needs.
final class BulkReader {
  enum Next {
    case header(BulkFrame.Header)
    /// Nothing has come for some time.
    case idle
    /// The peer has closed the lane between two frames.
    case ended
  }

  /// Some headers and blocks. What else is read with them is copied, so it is not much.
  static let byteCountMax = 16 << 10

  let cipher = SecretStreamCipher()
  let pool = BulkMemoryPool()
  private let end: BulkLane.End
  private let descriptorsMax: Int
  private let buffer = UnsafeMutableRawBufferPointer.allocate(byteCount: byteCountMax, alignment: 4096)
  /// The bytes that were read and not taken yet.
  private var filled = 0..<0
  /// Descriptors that have come and belong to a frame that was not taken yet.
  private var descriptors = DescriptorList()

  init(_ end: BulkLane.End, takesMemory: Bool) {
    self.end = end
    descriptorsMax = takesMemory ? 1 : 0
  }

  deinit {
    pool.close()
    buffer.deallocate()
  }

  /// Reads the header of the next frame, when something comes in time.
  func next(within time: Duration) throws(BulkFault) -> Next {
    while filled.count < BulkFrame.headerByteCount {
      // Behind its last byte, no frame has a descriptor.
      if filled.isEmpty, !descriptors.isEmpty {
        throw BulkFault(.unexpectedDescriptors, "a descriptor on the bulk lane, without its frame")
      }
      switch try fill(deadline: .now + time) {
      case nil: if filled.isEmpty { return .idle }
      case 0?: if filled.isEmpty { return .ended } else { throw Self.endWithinFrame }
      default: break
      }
    }
    return .header(BulkFrame.Header(takeFilled(BulkFrame.headerByteCount)))
  }

  /// Takes bytes that belong to the frame, at most as many as the buffer has; they are valid until
  /// the next call.
  func take(_ count: Int) throws(BulkFault) -> UnsafeRawBufferPointer {
    while filled.count < count { try requireMore(fill(deadline: nil)) }
    return takeFilled(count)
  }

  /// Reads bytes that belong to the frame, past the buffer but for those that are there already.
  func read(into memory: UnsafeMutableRawBufferPointer) throws(BulkFault) {
    var done = min(filled.count, memory.count)
    memory.copyMemory(from: takeFilled(done))
    while done < memory.count {
      let rest = UnsafeMutableRawBufferPointer(rebasing: memory[done...])
      // The descriptor of another frame does not come with these bytes.
      done += try requireMore(receive(into: rest, descriptorsMax: 0, deadline: nil))
    }
  }

  /// Passes over bytes that belong to the frame.
  func skip(_ count: Int) throws(BulkFault) {
    var left = count
    while left > 0 { left -= try take(min(left, Self.byteCountMax)).count }
  }

  /// The descriptor that came with the frame whose header was read last.
  func takeDescriptor() -> Descriptor? { descriptors.popFirst() }

  private func takeFilled(_ count: Int) -> UnsafeRawBufferPointer {
    defer { filled = filled.lowerBound + count..<filled.upperBound }
    return UnsafeRawBufferPointer(rebasing: buffer[filled.lowerBound..<filled.lowerBound + count])
  }

  /// Reads what has come into the buffer, behind what is there.
  private func fill(deadline: ContinuousClock.Instant?) throws(BulkFault) -> Int? {
    if filled.lowerBound > 0 {
      buffer.copyMemory(from: UnsafeRawBufferPointer(rebasing: buffer[filled]))
      filled = 0..<filled.count
    }
    let room = UnsafeMutableRawBufferPointer(rebasing: buffer[filled.upperBound...])
    let count = try receive(
      into: room, descriptorsMax: descriptorsMax - descriptors.count, deadline: deadline)
    filled = 0..<filled.upperBound + (count ?? 0)
    return count
  }

  /// Nil when the time has passed, 0 at the end.
  private func receive(
    into room: UnsafeMutableRawBufferPointer, descriptorsMax: Int, deadline: ContinuousClock.Instant?
  ) throws(BulkFault) -> Int? {
    do throws(SocketError) {
      var received = try end.connection.receive(
        into: room, descriptorsMax: descriptorsMax, deadline: deadline)
      while let descriptor = received.descriptors.popFirst() { descriptors.append(descriptor) }
      return received.byteCount
    } catch .timedOut {
      return nil
    } catch .tooManyDescriptors {
      throw BulkFault(.unexpectedDescriptors, "descriptors on the bulk lane")
    } catch {
      throw BulkFault(.connectionLost, error.what)
    }
  }

  @discardableResult
  private func requireMore(_ count: Int?) throws(BulkFault) -> Int {
    guard let count, count > 0 else { throw Self.endWithinFrame }
    return count
  }

  private static let endWithinFrame = BulkFault(
    .connectionLost, "the peer closed the bulk lane within a frame")
}
