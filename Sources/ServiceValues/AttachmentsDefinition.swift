/// How many attachments a message has, and what is in them. What is in them is for people: it is not checked.
public struct AttachmentsDefinition: Sendable, Hashable {
  /// What one attachment is, in words for people.
  public struct Item: Sendable, Hashable {
    /// A short name of the attachment, for people.
    public var title: String?
    /// What the attachment is for, in words for people.
    public var description: String?
    /// A MIME type.
    public var format: String?

    /// Describes an attachment. Every part may be missing.
    public init(title: String? = nil, description: String? = nil, format: String? = nil) {
      self.title = title
      self.description = description
      self.format = format
    }
  }

  /// Descriptions of attachments: one for all of them, or one for each position.
  public enum Items: Sendable, Hashable {
    /// One description, which holds for each attachment.
    case each(Item)
    /// One description for each attachment, in order.
    case inOrder([Item])
  }

  /// What each attachment is. Descriptions in order require as many attachments.
  public var items: Items?
  /// What may follow behind ``items`` in order; nil: nothing.
  public var additionalItems: Items?
  /// The fewest attachments; nil: as many as ``items`` has in order, else 0.
  public var minItems: Int?
  /// The most attachments; nil: as many as ``items`` and ``additionalItems`` allow.
  public var maxItems: Int?

  /// Describes the attachments of a message. Without arguments any number is right.
  public init(
    items: Items? = nil, additionalItems: Items? = nil, minItems: Int? = nil, maxItems: Int? = nil
  ) {
    self.items = items
    self.additionalItems = additionalItems
    self.minItems = minItems
    self.maxItems = maxItems
  }

  /// The smallest number of attachments that is right.
  public var countMin: Int {
    if case .inOrder(let items) = items { max(items.count, minItems ?? 0) } else { minItems ?? 0 }
  }

  /// The greatest number of attachments that is right; nil: any number.
  public var countMax: Int? {
    guard case .inOrder(let items) = items else { return maxItems }
    let inOrderMax: Int? =
      switch additionalItems {
      case nil: items.count
      case .each: nil
      case .inOrder(let more): items.count + more.count
      }
    guard let maxItems, let inOrderMax else { return maxItems ?? inOrderMax }
    return min(maxItems, inOrderMax)
  }
}
