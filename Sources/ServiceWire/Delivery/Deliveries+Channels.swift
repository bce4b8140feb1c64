package import SodiumPrimitives

extension Deliveries {
  /// Both sides have said hello; `frameByteCountMax` and `attachmentCountMax` are what the peer's said.
  package mutating func channelOpened(
    _ number: ChannelNumber, frameByteCountMax: Int = .max, attachmentCountMax: UInt64 = 0
  ) -> [DeliveryOutput] {
    precondition(channels[number] == nil, "the number of a channel is used once")
    isConnecting = false
    channels[number] = Channel(
      frameByteCountMax: frameByteCountMax, attachmentCountMax: attachmentCountMax)
    order.append(number)
    var outputs: [DeliveryOutput] = []
    flush(&outputs)
    return outputs
  }

  /// The channel has ended, in good order or not; nothing for one that is not known. Ask ``waitsForChannel`` afterwards: unless the channel
  /// served, no other is asked for before ``retry()``.
  package mutating func channelClosed(_ number: ChannelNumber) -> [DeliveryOutput] {
    guard let closed = channels.removeValue(forKey: number) else { return [] }
    order.removeAll { $0 == number }
    var outputs: [DeliveryOutput] = []
    let sent = outgoing.filter { $0.value.state.channel == number }
    for (id, delivery) in sent.sorted(by: { $0.value.number < $1.value.number }) {
      endStream(id, &outputs)
      offeredCount -= 1
      switch delivery.state {
      case .failed: outgoing[id] = nil
      case .loading where delivery.isCancelled && !delivery.wasOffered: settle(id, .cancelled, &outputs)
      default:
        outgoing[id]?.state = .queued
        outgoing[id]?.nextPage = nil
        insertInQueue(id, delivery.number)
      }
    }
    for (id, delivery) in incoming.sorted(by: { $0.key < $1.key }) where delivery.channels.contains(number) {
      incoming[id]?.waiting.removeAll { $0.channel == number }
      if delivery.channel == number { interrupt(id, &outputs) }
    }
    for (id, inquiry) in inquiries.sorted(by: { $0.key < $1.key }) where inquiry == .asked(number) {
      inquiries[id] = .waiting
      waitingInquiries.append(id)
    }
    if closed.hasServed { outputs += retry() }
    flush(&outputs)
    return outputs
  }

  /// There is no way to the peer now: everything waits. The owner calls ``retry()`` when it is worth another attempt.
  package mutating func channelRefused() -> [DeliveryOutput] {
    isConnecting = false
    return []
  }

  /// Asks for a channel when something waits for one and none was asked for.
  package mutating func retry() -> [DeliveryOutput] {
    guard waitsForChannel, !isConnecting else { return [] }
    isConnecting = true
    return [.connect]
  }

  mutating func close(_ number: ChannelNumber, _ fault: ProtocolFault, detail: String = "")
    -> [DeliveryOutput]
  {
    guard channels[number] != nil else { return [] }
    return [.close(number, fault, detail: detail)] + channelClosed(number)
  }

  /// Lets the owner load what may be offered, and sends what waits.
  mutating func flush(_ outputs: inout [DeliveryOutput]) {
    guard let number = newest, let channel = channels[number] else { return }
    for id in waitingEnds { outputs.append(.send(.with { $0.requestEnded.id = id.data }, on: number)) }
    waitingEnds = []
    let inquiryCount = min(waitingInquiries.count, limits.inquiryCountMax - channel.inquiryCount)
    for id in waitingInquiries.prefix(inquiryCount) {
      inquiries[id] = .asked(number)
      outputs.append(.send(.with { $0.replyInquiry.id = id.data }, on: number))
    }
    waitingInquiries.removeFirst(inquiryCount)
    channels[number]?.inquiryCount += inquiryCount
    while offeredCount < limits.sentCountMax, let id = queue.first, let delivery = outgoing[id] {
      queue.removeFirst()
      if channel.attachmentCountMax > 0, delivery.fileCount > channel.attachmentCountMax, !delivery.wasOffered
      {
        settle(id, .refused(Self.failure(.limitExceeded, DeliveryLimits.attachmentCountName)), &outputs)
        continue
      }
      offeredCount += 1
      outgoing[id]?.state = .loading(number)
      outputs.append(.wantsOffer(id))
    }
  }

  /// By number: those that are offered again come before those that were not offered yet.
  mutating func insertInQueue(_ id: Identifier, _ number: UInt64) {
    var low = 0
    var high = queue.count
    while low < high {
      let middle = (low + high) / 2
      if outgoing[queue[middle]]?.number ?? 0 < number { low = middle + 1 } else { high = middle }
    }
    queue.insert(id, at: low)
  }

  // MARK: About replies

  /// Asks whether a reply to a request that was delivered may still come, over the channel there is or the next one.
  package mutating func inquire(_ request: Identifier) -> [DeliveryOutput] {
    guard inquiries[request] == nil else { return [] }
    inquiries[request] = .waiting
    waitingInquiries.append(request)
    var outputs = retry()
    flush(&outputs)
    return outputs
  }

  /// The answer to `inquired`.
  package mutating func standing(_ request: Identifier, isAwaited: Bool) -> [DeliveryOutput] {
    var outputs: [DeliveryOutput] = []
    for number in order where channels[number]?.asked.remove(request) != nil {
      outputs.append(
        .send(
          .with {
            $0.replyStanding = .with {
              $0.id = request.data
              $0.isAwaited = isAwaited
            }
          }, on: number))
    }
    return outputs
  }

  /// There will be no reply to a request that was delivered: said over the channel there is or the next one.
  package mutating func endRequest(_ request: Identifier) -> [DeliveryOutput] {
    waitingEnds.append(request)
    var outputs = retry()
    flush(&outputs)
    return outputs
  }
}
