/// The style of a line that the settings of every app have.
///
/// The launcher's model shows the icon and its colour. The other members keep values of any type,
/// and change nothing.
public final class GTLCommonSettingsCellConfiguration: NSObject {
  /// The icon as PNG; nil without one. The vendor has an image here.
  public var icon: Data?
  /// The icon's colour in CSS; nil without one. The vendor has a colour object here.
  public var iconTintColor: String?
  /// The background, which is not shown.
  public var backgroundColor: Any?
  /// The colour of the text, which is not shown.
  public var textColor: Any?
  /// The font of the text, which is not shown.
  public var textFont: Any?
  /// The type of the accessory, which is not shown.
  public var accessoryType: Any?
  /// The accessory, which is not shown.
  public var accessoryView: Any?
  /// The change of the left margin, which is not shown.
  public var leftMarginDelta: CGFloat = 0

  /// Makes the default style.
  public override init() {}

  /// Makes the default style, which is the same for all types: no icon, and nothing set.
  public class func defaultConfiguration(
    for type: GTLCommonSettingsCellType
  ) -> GTLCommonSettingsCellConfiguration { GTLCommonSettingsCellConfiguration() }
}
